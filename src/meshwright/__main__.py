"""`python -m meshwright`, and the command `meshwright`."""

from typing import NoReturn


def main() -> NoReturn:
    """Runs the command line; an interrupt before it is even loaded is as quiet as one after."""
    try:
        from meshwright.cli.main import main as run_and_exit

        run_and_exit()
    except KeyboardInterrupt:
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()

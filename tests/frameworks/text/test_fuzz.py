"""No text, however odd, meets anything but settings or InvalidInput, in bounded time."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import SAMPLES

from meshwright.base.errors import InvalidInput
from meshwright.frameworks.setting import Source
from meshwright.frameworks.text import parse_source, syntax_of

SYNTAXES = ("shell", "overrides", "json", "toml", "yaml", "python")
TOKENS = {
    "shell": "--a -b $X ${X:-1} ${X[@]} $((1+X)) $( ` ' \" \\\n \n ( ) { } ; && | if then else fi"
    " for in do done case esac [ ] -z = X= X+=( ARGS=( torchrun --nproc_per_node 8 python -m << EOF"
    " #  ${ $(( )) export srun f() bash -c a.b=c ~ 4 GPUs 2 nodes x",
    "overrides": "a.b= +a ~b.c = ' \" [1,2] \n null ${x} # $",
    "json": '{ } [ ] , : "a" "b" 1 -1 1e9 true null # // /* */ \\ \n "a":{ NaN 1e999',
    "toml": "a b = 1 \" ' \"\"\" ''' [ ] [[ ]] { } , . # \n 1979-05-27 07:32 true inf \\u",
    "yaml": "a: b: - \n \n  & &x *x << <<: *x { } [ ] , | > ! !!python/name:os # ' \" ? --- ..."
    " ${a} ${.a} ${b.c} \t %",
    "python": 'def f( ): return x.y = 1 \n \n    dict( a= ) { } [ ] , ** * + 9 << \'a\' """ # class'
    " C: if else: import os f(f) x[ ] lambda F(a=1) \t \\ os.environ['A']='1'",
}

N = range(40)
LIMIT_S = 10  # what grows without end takes minutes; all others 0.7 at the most


def checked(text, syntax):
    """Parses; spans must lie in the text, time be bounded."""
    start = time.process_time()
    try:
        result = parse_source(Source(file="f", text=text, syntax=syntax))
    except InvalidInput:
        return
    finally:
        assert time.process_time() - start < LIMIT_S
    facts = [s for value in result.launch.values() for s in value.settings]
    for setting in (*result.settings, *result.references, *result.remarked, *facts):
        for span in (setting.key, setting.where, setting.whole):
            assert 0 <= span.start <= span.end <= len(text), (setting.name, span)
        setting.label("here")


def words(syntax):
    tokens = st.sampled_from([t for t in TOKENS[syntax].split(" ") if t] + [" ", "\n", "  "])
    return st.lists(st.one_of(tokens, tokens, st.text(max_size=3)), max_size=40).map(" ".join)


@pytest.mark.parametrize("syntax", SYNTAXES)
@settings(deadline=None, max_examples=80)
@given(data=st.data())
def test_odd_words(syntax, data):
    checked(data.draw(words(syntax)), syntax)
    checked(data.draw(words(syntax)).replace(" ", ""), syntax)


@settings(deadline=None, max_examples=80)
@given(text=st.text(max_size=80), syntax=st.sampled_from(SYNTAXES))
def test_odd_characters(text, syntax):
    checked(text, syntax)
    checked(text, syntax_of("-", text))


@settings(deadline=None, max_examples=100)
@given(
    file=st.sampled_from(sorted(SAMPLES)),
    cuts=st.lists(st.integers(0, 2000), min_size=4, max_size=4),
)
def test_torn_files(file, cuts):
    text = SAMPLES[file]
    a, b, c, d = (cut % (len(text) + 1) for cut in cuts)
    checked(text[:a] + text[b:], syntax_of(file, text))
    checked(text[:a] + text[min(c, d) : max(c, d)] * 3 + text[a:], syntax_of(file, text))


@pytest.mark.parametrize(
    ("syntax", "text"),
    [
        ("shell", "$(" * 5000),
        ("shell", "${A:-" * 5000),
        ("shell", '"${A:-' * 3000),
        ("shell", "if [ x ]; then\n" * 3000),
        ("shell", "( " * 5000),
        ("shell", "f() { f; f; f; }; f\n" * 50),
        ("shell", "A=--x\n" + "A=$A$A\n" * 200 + "cmd $A"),
        ("shell", "A=(--x 1)\n" + 'A+=("${A[@]}" "${A[@]}")\n' * 60 + 'python t.py "${A[@]}"'),
        ("shell", "x" * 200_000),
        ("shell", "'" * 20_000),
        ("shell", "--a " * 20_000),
        ("shell", "$((" + "(" * 3000 + "1" + ")" * 3000 + "))"),
        ("shell", "A=$((" + "-" * 3000 + "1))\nx --a $A"),
        ("shell", "X=$((9999999999 ** 63))\nx --a $X"),
        ("shell", "cat <<A <<B\n" * 3000),
        ("shell", "# " + "8 x " * 20_000),
        ("shell", "# llama" + "-a" * 20_000 + "("),
        ("shell", "# " + "a=1 " * 20_000),
        ("shell", "# 9" + " " * 380 + "2"),
        ("shell", "# 9" + " x" * 190 + "2"),
        ("shell", "# a" + " =" * 190),
        ("shell", "# " + "NVIDIA " * 20_000),
        ("shell", "\\\n" * 50_000),
        ("shell", "[ a ] && " * 3000 + "x"),
        ("shell", "case x in " + "a) " * 3000),
        ("json", "/*" * 50_000),
        ("json", '{"a":' * 5000),
        ("json", "#" * 50_000 + "\n1"),
        ("yaml", "a: ${b}\nb: ${a}\n"),
        ("yaml", "a: &a [x]\nb: " + "[*a, " * 500 + "]" * 500),
        ("yaml", "a: 1\n" * 3000),
        ("toml", "a." * 3000 + "b = 1"),
        ("python", "f(" * 90 + ")" * 90),
        ("python", "x = " + "-" * 5000 + "1"),
        ("python", "x = " + "1 + " * 5000 + "1"),
        ("python", "x = 9 ** 9 ** 9 ** 9"),
        ("python", "x = 'a' * 10 ** 9\ny = [1] * 10 ** 9"),
        ("python", "def f(): return f()\n"),
        ("python", "a = dict(x=1)\n" + "a = dict(p=a, q=a)\n" * 40),
        ("python", "\n".join(f"def f{i}(): return C(a=f{i + 1}(), b=f{i + 1}())" for i in N)),
        ("python", "a." * 3000 + "b = 1"),
        ("overrides", "a.b=" + "$a" * 5000),
    ],
)  # fmt: skip
def test_texts_that_could_grow_or_nest_without_end(syntax, text):
    checked(text, syntax)

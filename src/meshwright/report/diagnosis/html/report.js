"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const KINDS = ["compute", "communication", "copies", "idle"];
  const redraws = [];
  const byId = (id) => document.getElementById(id);
  const color = (name) => getComputedStyle(root).getPropertyValue("--" + name).trim();

  function add(parent, tag, text, cls) {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (cls) made.className = cls;
    parent.append(made);
    return made;
  }

  function time(us) {
    if (us === null || us === undefined) return "";
    if (us === 0) return "0";
    const [size, unit] = us >= 1e6 ? [1e6, "s"] : us >= 1e3 ? [1e3, "ms"] : [1, "us"];
    const value = us / size;
    return value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : 2) + " " + unit;
  }

  // Light and dark

  const dark = matchMedia("(prefers-color-scheme: dark)");
  function paint(theme) {
    root.dataset.theme = theme;
    redraws.forEach((draw) => draw());
  }
  byId("theme").addEventListener("click", () =>
    paint(root.dataset.theme === "dark" ? "light" : "dark"));
  dark.addEventListener("change", () => paint(dark.matches ? "dark" : "light"));
  root.dataset.theme = dark.matches ? "dark" : "light";

  // One box that follows the pointer

  const tip = add(document.body, "div");
  tip.id = "tip";
  tip.hidden = true;
  function tell(event, text) {
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    const box = tip.getBoundingClientRect();
    const x = event.clientX + 14 + box.width > innerWidth ? event.clientX - box.width - 10 : event.clientX + 14;
    const y = event.clientY + 14 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 14;
    tip.style.left = Math.max(4, x) + "px";
    tip.style.top = Math.max(4, y) + "px";
  }

  function sized(canvas, width, height) {
    const scale = Math.min(devicePixelRatio || 1, 16000 / width);
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.height = height + "px";
    const pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    return pen;
  }

  // Ranks: name, file, compute, communication, copies, idle, wait, waited for, last, because, mostly

  const TIMES = 2;
  const stepOf = (rank) => rank[2] + rank[3] + rank[4] + rank[5];
  const ORDERS = {
    "rank": (a, b) => a[0].localeCompare(b[0], undefined, { numeric: true }),
    "worst first": null,
    "step": (a, b) => stepOf(b) - stepOf(a),
    "compute": (a, b) => b[2] - a[2],
    "idle": (a, b) => b[5] - a[5],
  };
  const PAGE = 25;

  function ranks() {
    const canvas = byId("ranks-chart");
    if (!canvas) return;
    let shown = PAGE;
    let chosen = [];
    const most = Math.max(...data.ranks.map(stepOf), 1e-9);
    const left = 58, height = 210, foot = 22;

    function choose() {
      const words = byId("find").value.trim().toLowerCase().split(/[\s,]+/).filter(Boolean);
      chosen = data.ranks.filter((rank) => words.length === 0 || words.some((word) => matches(rank, word)));
      const order = ORDERS[byId("order").value];
      if (order) chosen = chosen.slice().sort(order);
      byId("count").textContent = chosen.length + " of " + data.ranks.length;
    }

    function matches(rank, word) {
      const range = /^(\d+)-(\d+)$/.exec(word);
      if (range) return Number(rank[0]) >= Number(range[1]) && Number(rank[0]) <= Number(range[2]);
      if (/^\d+$/.test(word)) return rank[0] === word;
      return (rank[0] + " " + rank[1] + " " + rank[9] + " " + rank[10]).toLowerCase().includes(word);
    }

    const width = () => Math.max(canvas.parentElement.clientWidth, left + chosen.length);
    const wide = () => (width() - left) / Math.max(1, chosen.length);

    function chart() {
      const all = width();
      canvas.style.width = all + "px";
      const pen = sized(canvas, all, height);
      axis(pen, all);
      const each = wide();
      const gap = each > 6 ? 2 : 0;
      chosen.forEach((rank, n) => {
        let y = height - foot;
        KINDS.forEach((kind, k) => {
          const tall = (rank[TIMES + k] / most) * (height - foot - 10);
          pen.fillStyle = color(kind);
          pen.fillRect(left + n * each, y - tall, Math.max(each - gap, 0.6), tall);
          y -= tall;
        });
      });
      names(pen, each);
    }

    function axis(pen, all) {
      pen.fillStyle = color("faint");
      pen.strokeStyle = color("line");
      pen.textAlign = "right";
      [0, 0.5, 1].forEach((part) => {
        const y = height - foot - part * (height - foot - 10);
        pen.fillText(time(part * most), left - 8, Math.max(8, y));
        pen.beginPath();
        pen.moveTo(left, y + 0.5);
        pen.lineTo(all, y + 0.5);
        pen.stroke();
      });
    }

    function names(pen, each) {
      pen.fillStyle = color("faint");
      pen.textAlign = "center";
      const longest = Math.max(1, ...chosen.map((rank) => rank[0].length));
      const every = Math.ceil((7 * longest + 10) / each);
      for (let n = 0; n < chosen.length; n += every) {
        pen.fillText(chosen[n][0], left + (n + 0.5) * each, height - 9);
      }
    }

    const HEAD = [["rank", 0], ["step", 1], ["compute", 1], ["comm. exposed", 1], ["copies", 1],
      ["idle", 1], ["waits for others", 1], ["all others wait", 1], ["came last", 1],
      ["because of", 0], ["mostly loses to", 0], ["file", 0]];

    function cells(rank) {
      const times = [stepOf(rank), ...rank.slice(2, 8)].map((us) => (us ? time(us) : ""));
      return [rank[0], ...times, rank[8] === null ? "" : String(rank[8]), rank[9], rank[10], rank[1].split(/[\\/]/).pop()];
    }

    function table() {
      const place = byId("ranks-table");
      place.textContent = "";
      const rows = chosen.slice(0, shown).map(cells);
      const used = HEAD.map((_, n) => rows.some((row) => row[n] !== ""));
      const head = add(add(place, "thead"), "tr");
      HEAD.forEach(([title, right], n) => used[n] && add(head, "th", title, right ? "right" : "left"));
      const body = add(place, "tbody");
      rows.forEach((row) => {
        const line = add(body, "tr");
        row.forEach((text, n) => used[n] && add(line, "td", text, HEAD[n][1] ? "right" : "left"));
      });
      byId("more").hidden = chosen.length <= shown;
    }

    function draw() {
      choose();
      chart();
      table();
    }

    canvas.addEventListener("mousemove", (event) => {
      const n = Math.floor((event.offsetX - left) / wide());
      const rank = chosen[n];
      if (!rank || event.offsetX < left) return tell(event, "");
      const lines = KINDS.map((kind, k) => kind + " " + time(rank[TIMES + k]));
      if (rank[7]) lines.push("all others wait " + time(rank[7]) + " for it: " + rank[9]);
      tell(event, "rank " + rank[0] + ": " + time(stepOf(rank)) + "\n" + lines.join("\n") + "\n" + rank[1]);
    });
    canvas.addEventListener("mouseleave", (event) => tell(event, ""));
    byId("order").value = data.ranks.length > 64 ? "worst first" : "rank";
    ["order", "find"].forEach((id) => byId(id).addEventListener("input", () => { shown = PAGE; draw(); }));
    byId("more").addEventListener("click", () => { shown += 4 * PAGE; table(); });
    redraws.push(draw);
  }

  // Timelines: rows of lanes; a bar is lane, label, start, length

  const HUES = ["compute", "communication", "copies", "memory", "accent", "bad", "hidden", "faint"];

  function timeline(id, picture, laneColors) {
    const canvas = byId(id + "-chart");
    if (!canvas || !picture) return;
    const left = 86, top = 22;
    const rowHeight = picture.rows.length > 24 ? 16 : 26;
    const height = top + picture.rows.length * rowHeight + 6;
    let first = Infinity, last = 0;
    picture.rows.forEach((row) => {
      for (let n = 0; n < row.bars.length; n += 4) {
        first = Math.min(first, row.bars[n + 2]);
        last = Math.max(last, row.bars[n + 2] + row.bars[n + 3]);
      }
    });
    if (!(last > first)) return;
    let from = first, to = last;
    const wide = () => canvas.clientWidth - left;
    const at = (us) => left + ((us - from) / (to - from)) * wide();

    const lanes = [];
    picture.rows.forEach((row) => row.lanes.forEach((lane) => lanes.includes(lane) || lanes.push(lane)));
    const colors = () => new Map(lanes.map((lane, n) => [lane, color(laneColors(lane, n)[0])]));

    function legend() {
      const place = byId(id + "-legend");
      place.textContent = "";
      new Map(lanes.map((lane, n) => laneColors(lane, n).reverse())).forEach((hue, words) => {
        const item = add(place, "span");
        add(item, "i").style.background = color(hue);
        item.append(words);
      });
    }

    // Work stands in three lines of a row, idle time behind them
    function boxOf(lane, y) {
      const tall = rowHeight - 3;
      if (lane === "communication") return [y + tall * 0.46, tall * 0.34];
      if (lane === "memory") return [y + tall * 0.82, tall * 0.18];
      if (lane === "compute") return [y, tall * 0.44];
      return [y, tall];
    }

    function draw() {
      const pen = sized(canvas, canvas.clientWidth, height);
      const hues = colors();
      scale(pen);
      pen.save();
      pen.beginPath();
      pen.rect(left, 0, wide(), height);
      pen.clip();
      picture.rows.forEach((row, n) => bars(pen, row, top + n * rowHeight, hues));
      pen.restore();
      pen.textAlign = "right";
      pen.fillStyle = color("ink");
      picture.rows.forEach((row, n) => {
        pen.fillText(row.name.slice(0, 12), left - 8, top + (n + 0.5) * rowHeight - 1, left - 12);
      });
    }

    function bars(pen, row, y, hues) {
      const order = row.lanes.map((lane, n) => [lane.startsWith("idle") ? 0 : 1, n]);
      [0, 1].forEach((pass) => {
        for (let n = 0; n < row.bars.length; n += 4) {
          if (order[row.bars[n]][0] !== pass) continue;
          const lane = row.lanes[row.bars[n]];
          const x = at(row.bars[n + 2]);
          const end = at(row.bars[n + 2] + row.bars[n + 3]);
          if (end < left || x > left + wide()) continue;
          const [place, tall] = boxOf(lane, y);
          pen.globalAlpha = pass ? 1 : 0.35;
          pen.fillStyle = hues.get(lane);
          pen.fillRect(x, place, Math.max(end - x, 0.5), tall);
        }
      });
      pen.globalAlpha = 1;
      pen.fillStyle = color("ink");
      row.steps.forEach(([, start]) => {
        const x = at(start);
        if (x >= left) pen.fillRect(x, y - 1, 1, rowHeight);
      });
    }

    function scale(pen) {
      pen.fillStyle = color("faint");
      pen.strokeStyle = color("line");
      pen.textAlign = "left";
      const step = nice((to - from) / Math.max(2, wide() / 130));
      for (let us = Math.ceil(from / step) * step; us <= to; us += step) {
        const x = Math.round(at(us)) + 0.5;
        pen.beginPath();
        pen.moveTo(x, 14);
        pen.lineTo(x, height);
        pen.stroke();
        if (x + 60 < left + wide()) pen.fillText(time(us - first), x + 4, 9);
      }
    }

    function nice(us) {
      const power = Math.pow(10, Math.floor(Math.log10(us)));
      return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= us);
    }

    function view(a, b) {
      const span = Math.min(Math.max(b - a, (last - first) / 20000), last - first);
      from = Math.min(Math.max(a, first), last - span);
      to = from + span;
      draw();
    }

    function under(event) {
      const row = picture.rows[Math.floor((event.offsetY - top) / rowHeight)];
      if (!row || event.offsetX < left) return null;
      const us = from + ((event.offsetX - left) / wide()) * (to - from);
      const near = (1.5 / wide()) * (to - from);
      const y = top + Math.floor((event.offsetY - top) / rowHeight) * rowHeight;
      let best = null;
      for (let n = 0; n < row.bars.length; n += 4) {
        const start = row.bars[n + 2], length = row.bars[n + 3];
        if (us < start - near || us > start + length + near) continue;
        const lane = row.lanes[row.bars[n]];
        const [place, tall] = boxOf(lane, y);
        const hit = event.offsetY >= place && event.offsetY <= place + tall ? 1 : 0;
        const rank = hit * 2 + (lane.startsWith("idle") ? 0 : 1);
        if (!best || rank > best.rank) best = { rank, row, lane, n, start, length };
      }
      return best;
    }

    let held = null;
    canvas.addEventListener("mousedown", (event) => { held = { x: event.offsetX, from, to }; });
    addEventListener("mouseup", () => { held = null; });
    canvas.addEventListener("mousemove", (event) => {
      if (held) {
        const moved = ((held.x - event.offsetX) / wide()) * (held.to - held.from);
        return view(held.from + moved, held.to + moved);
      }
      const found = under(event);
      if (!found) return tell(event, "");
      const label = picture.labels[found.row.bars[found.n + 1]];
      tell(event, found.row.name + ", " + found.lane + "\n" + label + "\n" + time(found.length) + " at " + time(found.start - first));
    });
    canvas.addEventListener("mouseleave", (event) => tell(event, ""));
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const us = from + ((event.offsetX - left) / wide()) * (to - from);
      const by = Math.pow(1.0015, event.deltaY);
      view(us - (us - from) * by, us + (to - us) * by);
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      const span = to - from;
      const moves = { ArrowLeft: [-0.1, -0.1], ArrowRight: [0.1, 0.1], "+": [0.1, -0.1], "-": [-0.125, 0.125] };
      const move = moves[event.key];
      if (move) { event.preventDefault(); view(from + move[0] * span, to + move[1] * span); }
    });
    const whole = () => view(first, last);
    canvas.addEventListener("dblclick", whole);
    byId(id + "-reset").addEventListener("click", whole);
    redraws.push(() => { legend(); draw(); });
  }

  // The color of a lane, and what the legend calls it
  function laneColor(lane, n) {
    if (/^idle.*loader/.test(lane)) return ["memory", "idle: data loader"];
    if (/^idle.*(launch|host)/.test(lane) && !/not.in/.test(lane)) return ["bad", "idle: launched late"];
    if (lane.startsWith("idle")) return ["faint", "idle: other"];
    const known = { compute: "compute", communication: "communication", memory: "copies" };
    return [known[lane] || HUES[n % HUES.length], lane === "memory" ? "copies" : lane];
  }

  function operationColor(kind, n) {
    const words = [[/^(forward|fwd)(-compute)?$/, "compute"], [/^(backward|bwd|b)(-compute)?$/, "memory"],
      [/weight|^w$/, "hidden"], [/send|recv|reduce|gather/, "communication"], [/optimizer/, "copies"], [/^gc$/, "bad"]];
    const found = words.find(([pattern]) => pattern.test(kind));
    if (!found) return [HUES[n % HUES.length], kind];
    return [found[1], found[1] === "communication" ? "communication" : kind.replace(/-.*/, "")];
  }

  ranks();
  timeline("pipeline", data.pipeline, operationColor);
  timeline("timeline", data.timeline, laneColor);
  redraws.forEach((draw) => draw());
  let wait = 0;
  addEventListener("resize", () => {
    clearTimeout(wait);
    wait = setTimeout(() => redraws.forEach((draw) => draw()), 100);
  });
})();

// Draws the plots of a report from data in the page, each plot when it becomes visible.
// Needs no network; without this script the tables of the page contain the same results.
"use strict";
(() => {
  const NAMES = ["ground", "line", "text", "quiet", "slower", "faster", "neutral", "grid", "point"];
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  let colours = {};
  let axis = "run";

  const readColours = () => {
    const style = getComputedStyle(document.documentElement);
    for (const name of NAMES) colours[name] = style.getPropertyValue(`--${name}`).trim();
  };
  // Plotly interprets some tags in texts: escape names.
  const shown = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const kindColour = (kind) => colours[kind] || colours.neutral;
  const faint = (colour, alpha) => {
    const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
    return `rgba(${red},${green},${blue},${alpha})`;
  };
  const percent = (ratio) => ratio >= 11 ? `x${ratio}`
    : ratio === 1 ? "same" : `${ratio > 1 ? "+" : "-"}${Math.round(Math.abs(ratio - 1) * 100)} %`;

  const padded = (first, last) => {
    const margin = Math.max((last - first) * 0.015, 0.5);
    return [first - margin, last + margin];
  };

  const layout = (given) => {
    const line = { gridcolor: colours.grid, zeroline: false, linecolor: colours.line,
      tickcolor: colours.line, automargin: true };
    return {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false,
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colours.quiet },
      margin: { l: 56, r: 12, t: 8, b: 44 }, hovermode: "closest",
      hoverlabel: { bgcolor: colours.ground, bordercolor: colours.line,
        font: { color: colours.text }, align: "left" },
      ...given,
      xaxis: { ...line, ...given.xaxis }, yaxis: { ...line, ...given.yaxis },
    };
  };

  const dateOf = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 19);
  const labelOf = (data, place) => `run ${data.run[place]} (${shown(data.id[place])}), commit ` +
    `${shown(data.commit[place])}<br>${dateOf(data.time[place]).replace("T", " ")} UTC`;

  const history = (data) => {
    const along = (runs, times) => axis === "run" ? runs : times.map(dateOf);
    const x = along(data.run, data.time);
    const traces = [];
    if (data.low) {
      const xs = [], ys = [];
      x.forEach((at, place) => {
        xs.push(at, at, null);
        ys.push(data.low[place], data.high[place], null);
      });
      traces.push({ x: xs, y: ys, mode: "lines", hoverinfo: "skip", connectgaps: false,
        line: { color: faint(colours.point, 0.35), width: 2 } });
    }
    // A distant outlier would flatten the plot: draw it at the edge as an arrow.
    const [least, most] = data.range;
    const side = (value) => value > most ? "triangle-up" : value < least ? "triangle-down" : "circle";
    const size = x.length > 400 ? 4 : 6;
    traces.push({ x, y: data.value.map((value) => Math.min(Math.max(value, least), most)),
      mode: "markers", customdata: data.value.map((value, place) => [value, labelOf(data, place)]),
      cliponaxis: false,
      marker: { symbol: data.value.map(side), color: colours.point,
        size: data.value.map((value) => side(value) === "circle" ? size : size + 4),
        line: { color: colours.ground, width: x.length > 400 ? 0 : 1 } },
      hovertemplate: `<b>%{customdata[0]:.4~g} ${data.unit}</b><br>%{customdata[1]}<extra></extra>` });
    for (const level of data.levels) {
      const ends = along(level.runs, level.times);
      traces.push({ x: ends, y: [level.mean, level.mean], mode: "lines",
        line: { color: kindColour(level.kind), width: 3 },
        hovertemplate: `${level.label}<extra></extra>` });
    }
    for (const drift of data.drifts) {
      traces.push({ x: along(drift.runs, drift.times), y: drift.values, mode: "lines",
        line: { color: kindColour(drift.kind), width: 3, dash: "dash" },
        hovertemplate: `${drift.label}<extra></extra>` });
    }
    const shapes = data.levels.slice(1).map((level) => ({
      type: "line", xref: "x", yref: "paper", y0: 0, y1: 1, layer: "below",
      x0: along(level.runs, level.times)[0],
      x1: along(level.runs, level.times)[0],
      line: { color: kindColour(level.kind), width: 1.5, dash: "dot" } }));
    const annotations = data.levels.slice(1).map((level) => ({
      x: along(level.runs, level.times)[0], y: 1, xref: "x", yref: "paper",
      xanchor: "left", yanchor: "top", xshift: 3, showarrow: false, text: level.change,
      font: { color: kindColour(level.kind), size: 12 }, bgcolor: faint(colours.ground, 0.75) }));
    return [traces, layout({ shapes, annotations,
      xaxis: axis === "run" ? { title: { text: "run" }, range: padded(x[0], x[x.length - 1]) }
        : { type: "date", title: { text: "time, UTC" } },
      yaxis: { title: { text: `${data.statistic}, ${data.unit}`.replace(/, $/, "") },
        range: data.range, tickformat: "~r" } })];
  };

  const distribution = (data) => {
    const { first, step, count, levels } = data.distribution;
    const grid = Array.from({ length: count }, (_, place) => first + place * step);
    const traces = [];
    levels.forEach((level, place) => {
      const floor = levels.length - 1 - place;
      const colour = kindColour(level.kind);
      traces.push({ x: [grid[0], grid[grid.length - 1]], y: [floor, floor], mode: "lines",
        hoverinfo: "skip", line: { color: colours.line, width: 1 } });
      traces.push({ x: grid, y: level.density.map((height) => floor + 0.85 * height),
        mode: "lines", fill: "tonexty", fillcolor: faint(colour, 0.25),
        line: { color: colour, width: 2, shape: "spline", smoothing: 0.4 },
        hovertemplate: `%{x:.4~g} ${data.unit}<extra></extra>` });
      traces.push({ x: [level.median, level.median], y: [floor, floor + 0.85], mode: "lines",
        line: { color: colour, width: 1.5, dash: "dot" },
        hovertemplate: `${level.label}<br>median %{x:.4~g} ${data.unit}<extra></extra>` });
    });
    return [traces, layout({ hovermode: "closest",
      xaxis: { title: { text: [data.distribution.of, data.unit].filter(Boolean).join(", ") },
        tickformat: "~r", nticks: 6 },
      yaxis: { tickvals: levels.map((_, place) => levels.length - 1 - place),
        ticktext: levels.map((level) => level.label), range: [-0.08, levels.length],
        showgrid: false } })];
  };

  const scaling = (data) => [[
    { x: data.line.concat(data.line.slice().reverse()),
      y: data.upper.concat(data.lower.slice().reverse()), fill: "toself", mode: "lines",
      line: { width: 0 }, fillcolor: faint(colours.faster, 0.18), hoverinfo: "skip" },
    { x: data.line, y: data.linear, mode: "lines", hovertemplate: "linear<extra></extra>",
      line: { color: colours.neutral, width: 1.5, dash: "dot" } },
    { x: data.line, y: data.fit, mode: "lines", line: { color: colours.faster, width: 2.5 },
      hovertemplate: `${data.law}<extra></extra>` },
    { x: data.sizes, y: data.values, mode: "markers", customdata: data.labels,
      marker: { color: colours.text, size: 8, line: { color: colours.ground, width: 1 } },
      hovertemplate: `${shown(data.param)} %{x:,}<br><b>%{customdata}</b><extra></extra>` },
  ], layout({
    xaxis: { type: "log", title: { text: shown(data.param) }, tickvals: data.sizes,
      ticktext: data.size_labels, nticks: 6 },
    yaxis: { type: "log", title: { text: data.statistic }, range: data.range, tickvals: data.ticks,
      ticktext: data.tick_labels } })];

  const overview = (data) => {
    const steps = [0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 3,
      5, 10, 20, 50, 100, 1000];
    const low = Math.min(0.93, ...data.low), high = Math.max(1.07, ...data.high);
    let ticks = steps.filter((step) => step >= low * 0.98 && step <= high * 1.02);
    if (ticks.length > 9) ticks = ticks.filter((step) => [0.01, 0.1, 0.5, 1, 2, 5, 10, 100, 1000]
      .includes(step));
    const traces = ["slower", "faster"].map((kind) => {
      const of = data.kind.map((_, place) => place).filter((at) => data.kind[at] === kind);
      const pick = (values) => of.map((at) => values[at]);
      return { x: pick(data.time), y: pick(data.ratio), mode: "markers",
        customdata: pick(data.section), text: pick(data.label).map(shown),
        error_y: { type: "data", symmetric: false, width: 0, thickness: 1.5,
          color: faint(kindColour(kind), 0.6), array: of.map((at) => data.high[at] - data.ratio[at]),
          arrayminus: of.map((at) => data.ratio[at] - data.low[at]) },
        marker: { color: kindColour(kind), size: 11, line: { color: colours.ground, width: 1 },
          symbol: kind === "slower" ? "triangle-up" : "triangle-down" },
        hovertemplate: "<b>%{text}</b><extra></extra>" };
    });
    return [traces, layout({
      shapes: [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: 1, y1: 1, layer: "below",
        line: { color: colours.neutral, width: 1.5 } }],
      xaxis: { type: "date", range: data.span },
      yaxis: { type: "log", tickvals: ticks, ticktext: ticks.map(percent),
        range: [Math.log10(low) - 0.06, Math.log10(high) + 0.06] } })];
  };

  // A plot that the program laid out: colours are names of this page, "@slower" or "@slower/0.2".
  const coloured = (value) => {
    if (typeof value === "string" && value[0] === "@") {
      const [name, alpha] = value.slice(1).split("/");
      return alpha ? faint(colours[name], Number(alpha)) : colours[name];
    }
    if (Array.isArray(value)) return value.map(coloured);
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, coloured(each)]));
  };
  const figure = (data) => {
    const given = layout(coloured(data.layout));
    const line = { gridcolor: colours.grid, zeroline: false, linecolor: colours.line,
      tickcolor: colours.line, automargin: true };
    for (const name of Object.keys(given).filter((each) => /^[xy]axis/.test(each))) {
      given[name] = { ...line, ...given[name] };
    }
    return [coloured(data.traces), given];
  };

  const kinds = { history, distribution, scaling, overview, figure };
  const dataOf = {};
  const drawing = (plot) => kinds[plot.dataset.kind](dataOf[plot.dataset.of]);

  // A plain SVG drawing of the page's first plot, which plotly.js replaces: to unpack and compile
  // that takes a second. Points, lines, intervals and axes; a plot of other things waits.
  const element = (name, attributes, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const scaleOf = (given, values, from, to) => {
    const isLog = given.type === "log", isDate = given.type === "date";
    const number = (value) => isDate ? Date.parse(`${value}Z`) : isLog ? Math.log10(value) : Number(value);
    const numbers = values.filter((value) => value !== null).map(number);
    const [least, most] = !given.range ? padded(Math.min(...numbers), Math.max(...numbers))
      : isLog ? given.range : given.range.map(number); // plotly's logarithmic ranges are exponents
    const place = (value) => from + (value - least) / (most - least) * (to - from);
    let ticks = [];
    if (given.tickvals) {
      ticks = given.tickvals.map((value, at) => [number(value), given.ticktext[at]]);
    } else if (isDate) {
      ticks = [0.1, 0.3, 0.5, 0.7, 0.9].map((share) => least + share * (most - least))
        .map((time) => [time, new Date(time).toISOString().slice(0, 10)]);
    } else if (!isLog) {
      const power = 10 ** Math.floor(Math.log10((most - least) / 6));
      const step = power * [1, 2, 5, 10].find((each) => each * power >= (most - least) / 6);
      for (let at = Math.ceil(least / step); at * step <= most; at++) {
        ticks.push([at * step, String(Number((at * step).toPrecision(6)))]);
      }
    }
    return { at: (value) => place(number(value)), ticks: ticks.map(([value, text]) => [place(value), text]) };
  };
  const sketch = (plot) => {
    const [traces, given] = drawing(plot);
    const { width, height } = plot.getBoundingClientRect();
    const isKnown = ({ type, mode }) => !type && (mode === "lines" || mode === "markers");
    const hasMoreAxes = Object.keys(given).some((name) => /^[xy]axis\d/.test(name));
    if (!width || hasMoreAxes || !traces.every(isKnown)) return;
    const ends = (trace, name, error) => trace[error] === undefined ? trace[name]
      : trace[name].flatMap((value, place) =>
        [value - trace[error].arrayminus[place], value + trace[error].array[place]]);
    const [top, bottom] = [given.margin.t, height - given.margin.b];
    const y = scaleOf(given.yaxis, traces.flatMap((trace) => ends(trace, "y", "error_y")), bottom, top);
    const longest = Math.max(...y.ticks.map(([, text]) => text.length));
    const left = Math.max(given.margin.l, 7 * longest + 12), right = width - given.margin.r;
    const x = scaleOf(given.xaxis, traces.flatMap((trace) => ends(trace, "x", "error_x")), left, right);
    const drawn = element("svg", { width, height, "font-size": 12, fill: colours.quiet });
    const line = (x1, y1, x2, y2, stroke, thickness, dash) => drawn.append(element("line",
      { x1, y1, x2, y2, stroke, "stroke-width": thickness, "stroke-dasharray": dash ? "3 3" : "none" }));
    for (const [at, text] of x.ticks) {
      line(at, top, at, bottom, colours.grid, 1);
      drawn.append(element("text", { x: at, y: bottom + 17, "text-anchor": "middle" }, text));
    }
    for (const [at, text] of y.ticks) {
      line(left, at, right, at, colours.grid, 1);
      drawn.append(element("text", { x: left - 5, y: at + 4, "text-anchor": "end" }, text));
    }
    const straight = (given.shapes || []).filter((shape) => shape.type === "line");
    for (const { xref, yref, x0, x1, y0, y1, line: { color, width: thickness, dash } } of straight) {
      const across = (value) => xref === "paper" ? left + value * (right - left) : x.at(value);
      const up = (value) => yref === "paper" ? bottom - value * (bottom - top) : y.at(value);
      line(across(x0), up(y0), across(x1), up(y1), color, thickness, dash === "dot");
    }
    for (const trace of traces) {
      const one = (value, place) => Array.isArray(value) ? value[place] : value;
      const points = trace.x.map((value, place) =>
        value === null || trace.y[place] === null ? null : [x.at(value), y.at(trace.y[place])]);
      if (trace.mode === "lines") {
        const path = points.map((point, place) =>
          point ? `${place && points[place - 1] ? "L" : "M"}${point[0].toFixed(1)} ${point[1].toFixed(1)}` : "");
        drawn.append(element("path", { d: path.join(""), fill: "none", "stroke-width": trace.line.width,
          stroke: trace.line.color, "stroke-dasharray": trace.line.dash ? "6 4" : "none" }));
        continue;
      }
      for (const [name, along] of [["error_y", y], ["error_x", x]]) {
        if (!trace[name]) continue;
        const { array, arrayminus, color, thickness } = trace[name];
        points.forEach(([cx, cy], place) => {
          const value = (name === "error_y" ? trace.y : trace.x)[place];
          const [from, to] = [value - arrayminus[place], value + array[place]].map(along.at);
          if (name === "error_y") line(cx, from, cx, to, color, thickness);
          else line(from, cy, to, cy, color, thickness);
        });
      }
      points.forEach(([cx, cy], place) => {
        const radius = (one(trace.marker.size, place) ?? 6) / 2, fill = one(trace.marker.color, place);
        const turn = { "triangle-up": -1, "triangle-down": 1 }[one(trace.marker.symbol, place)];
        drawn.append(turn
          ? element("path", { fill, d: `M${cx - radius * 1.15} ${cy - turn * radius / 2}h${radius * 2.3}` +
              `L${cx} ${cy + turn * radius * 1.5}Z` })
          : element("circle", { cx, cy, r: radius, fill }));
      });
    }
    plot.replaceChildren(drawn);
  };

  const draw = (plot) => {
    if (!plot.dataset.drawn) plot.replaceChildren();
    const [traces, given] = drawing(plot);
    Plotly.react(plot, traces, given, { responsive: true, displayModeBar: false });
    if (plot.dataset.drawn) return;
    plot.dataset.drawn = "1";
    plot.on("plotly_click", (event) => {
      const section = plot.dataset.kind === "overview" && event.points[0].customdata;
      if (section) location.hash = section;
    });
  };
  const redraw = () => document.querySelectorAll(".plot[data-drawn]").forEach(draw);

  // All other data and plotly.js are in the page, compressed.
  const unpacked = (packed) => {
    const bytes = Uint8Array.fromBase64 ? Uint8Array.fromBase64(packed.textContent)
      : Uint8Array.from(atob(packed.textContent), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  };
  // Resolves once the browser has painted; a page that is not visible paints nothing.
  const painted = () => new Promise((resolve) => {
    requestAnimationFrame(() => setTimeout(resolve));
    setTimeout(resolve, 500);
  });
  const begin = async () => {
    // This script stands between the data of the first plot, which are drawn before the browser
    // reads on, and all other data.
    const first = document.getElementById("first-data");
    if (!first) return;
    Object.assign(dataOf, JSON.parse(first.textContent));
    readColours();
    sketch(document.querySelector(".plot"));
    if (document.readyState === "loading") {
      await new Promise((parsed) => document.addEventListener("DOMContentLoaded", parsed));
    }
    await painted();
    const [data, plotly] = await Promise.all(["packed-data", "packed-plotly"].map((id) => {
      const packed = document.getElementById(id);
      return packed && unpacked(packed);
    }));
    if (data) Object.assign(dataOf, JSON.parse(data));
    if (plotly) {
      const script = document.createElement("script");
      script.textContent = plotly;
      document.head.append(script);
    }
    // One plot at a time, so that the page answers while the others wait.
    const waiting = new Set();
    const drawNext = () => {
      const [plot] = waiting;
      if (!plot) return;
      waiting.delete(plot);
      draw(plot);
      setTimeout(drawNext);
    };
    // Remove plots far outside the view, so that two hundred series need little memory.
    const observer = new IntersectionObserver((entries) => {
      const isIdle = waiting.size === 0;
      for (const { target, isIntersecting } of entries) {
        if (isIntersecting) waiting.add(target);
        else {
          waiting.delete(target);
          if (target.dataset.drawn) Plotly.purge(target);
          delete target.dataset.drawn;
        }
      }
      if (isIdle) drawNext();
    }, { rootMargin: "1200px 0px" });
    document.querySelectorAll(".plot").forEach((plot) => observer.observe(plot));
    window.addEventListener("beforeprint", () => {
      document.querySelectorAll(".plot").forEach(draw);
    });
    dark.addEventListener("change", () => { readColours(); redraw(); });
    document.querySelectorAll("input[name=axis]").forEach((input) => {
      input.addEventListener("change", () => { axis = input.value; redraw(); });
    });
  };
  begin().catch((error) => {
    for (const plot of document.querySelectorAll(".plot")) {
      plot.textContent = `This browser cannot draw the plots (${error}); the tables have the results.`;
    }
  });

  // The name filter hides rows and sections; a click on a column's head sorts the table.
  for (const input of document.querySelectorAll("input[type=search]")) {
    input.addEventListener("input", () => {
      const wanted = input.value.toLowerCase();
      for (const each of document.querySelectorAll("[data-name]")) {
        const name = each.dataset.name || each.textContent;
        each.hidden = !name.toLowerCase().includes(wanted);
      }
    });
  }
  for (const button of document.querySelectorAll("th button")) {
    button.addEventListener("click", () => {
      const head = button.closest("th");
      const body = head.closest("table").tBodies[0];
      const ascending = head.getAttribute("aria-sort") !== "ascending";
      for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      const keyOf = (row) => {
        const cell = row.cells[head.cellIndex];
        return cell.dataset.key ?? cell.textContent;
      };
      const order = (one, two) => {
        const [a, b] = [keyOf(one), keyOf(two)];
        const numbers = head.classList.contains("number");
        return numbers ? Number(a) - Number(b) : a.localeCompare(b);
      };
      const rows = [...body.rows].sort(order);
      body.append(...(ascending ? rows : rows.reverse()));
    });
  }
})();

// The plots: Vega-Lite specifications from the report's own figures.py, drawn when they come near the screen.

const LANES = ["gold", "neighbor", "prediction"];
const plots = [];
const waiting = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) plots.find((plot) => plot.place === entry.target)?.draw();
}, { rootMargin: "500px" });

function theme() {
  const text = ink("--ink"), muted = ink("--muted"), line = ink("--line"), font = ink("--sans");
  return {
    background: ink("--card"), font, padding: 2,
    axis: { labelColor: muted, titleColor: muted, gridColor: line, domainColor: line, tickColor: line, labelFontSize: 12,
      titleFontSize: 12, titleFontWeight: 400, titlePadding: 8, labelPadding: 5, domain: false, ticks: false, tickCount: 6 },
    legend: { labelColor: text, labelFontSize: 13, symbolStrokeWidth: 3, symbolSize: 160, labelLimit: 320, offset: 8, columnPadding: 18, rowPadding: 4 },
    view: { stroke: null }, text: { color: text, font }, line: { interpolate: "linear", strokeCap: "round" },
  };
}

// The specification as it is drawn: the rows in it, the colors of the groups, lanes in those of their sources.
function completed(figure, rows, width) {
  const spec = structuredClone(figure.spec);
  spec.datasets = { rows };
  const chosen = shownGroups().filter((group) => rows.some((row) => row.group === groups[group].name));
  const color = spec.encoding.color;
  if (color) {
    color.scale = { domain: chosen.map((group) => groups[group].name), range: chosen.map(colorOf) };
    const longest = Math.max(...chosen.map((group) => groups[group].name.length), 1);
    color.legend.columns = Math.max(1, Math.floor(width / (7.5 * longest + 50)));
    color.legend.labelLimit = width - 60;
  } else {
    for (const layer of spec.layer) {
      if (layer.encoding.color?.scale) layer.encoding.color.scale.range = LANES.map((lane) => ink(`--${lane}`));
    }
  }
  if (width < 520 && typeof spec.height === "number") spec.height = 220;
  return spec;
}

// Vega-Embed, which travels compressed: unpacked once, while the page is put together. An open document within the page
// keeps it from being loaded before that: a program that prints it would find no plots.
async function unpackedVega() {
  const open = document.body.appendChild(make("iframe", { hidden: true }));
  open.contentDocument.open();
  try {
    const packed = Uint8Array.from(atob($("#vega").textContent), (letter) => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    document.head.append(make("script", {}, await new Response(stream).text()));
    return window.vegaEmbed;
  } catch {
    return null;
  } finally {
    open.contentDocument.close();
    open.remove();
  }
}
const vega = unpackedVega();

class Plot {
  constructor(figure, place, makeRows) {
    Object.assign(this, { figure, place, makeRows, view: null, stale: true, drawing: null });
    plots.push(this);
    waiting.observe(place);
  }

  // Where it is up to date, the promise of the drawing that made it so.
  draw() {
    if (this.stale) {
      this.stale = false;
      this.drawing = this.drawAnew();
    }
    return this.drawing;
  }

  async drawAnew() {
    const every = this.makeRows(), width = this.place.clientWidth, box = this.place.closest("figure");
    const rows = this.figure.without ? compared(every) : every;
    box.hidden = every.length === 0;
    box.classList.toggle("empty", rows.length === 0);
    if (!rows.length) return;
    const vegaEmbed = await vega;
    if (!vegaEmbed) {
      this.place.textContent = "This browser cannot unpack the plots: open the page in one of 2023 or later.";
      return;
    }
    const made = await vegaEmbed(this.place, completed(this.figure, rows, width), {
      renderer: "svg", actions: false, config: theme(), tooltip: { offsetX: 14, offsetY: 14 },
    });
    this.view?.finalize();
    this.view = made.view;
    this.place.setAttribute("role", "img");
    this.place.setAttribute("aria-label", `${this.figure.title}. ${this.figure.caption}`);
    this.place.dataset.drawn = "true";
  }

  // Draw it anew: now where it is near the screen, else when it comes there.
  refresh() {
    this.stale = true;
    this.place.closest("figure").hidden = false;
    this.place.closest("figure").classList.remove("empty");
    waiting.unobserve(this.place);
    waiting.observe(this.place);
  }
}

function frame(figure, makeRows) {
  const place = make("div", { className: "plot" });
  const plot = new Plot(figure, place, makeRows);
  const tools = make("div", { className: "tools" },
    make("button", { type: "button", "aria-label": `Download ${figure.title} as SVG`,
      onclick: async () => {
        await plot.draw();
        if (plot.view) download(`${figure.id}.svg`, "image/svg+xml", await plot.view.toSVG());
      } }, "SVG"),
    make("button", { type: "button", "aria-label": `Download ${figure.title} as CSV`,
      onclick: () => download(`${figure.id}.csv`, "text/csv", csv(plot.makeRows())) }, "CSV"));
  return make("figure", { id: `figure-${figure.id}` },
    make("div", { className: "head" }, make("h3", {}, figure.title), tools), place,
    figure.without ? make("p", { className: "without" }, figure.without) : null,
    figure.caption ? make("figcaption", {}, figure.caption) : null);
}

function placePlots() {
  const byId = new Map(DATA.figures.map((figure) => [figure.id, figure]));
  for (const box of document.querySelectorAll("#plots [data-figures]")) {
    for (const id of box.dataset.figures.split(" ")) {
      const figure = byId.get(id), [kind, argument] = figure.rows.split(":");
      if (everHasRows(kind, argument)) box.append(frame(figure, () => rowsOf[kind](argument)));
    }
    if (!box.children.length) leaveOut(box.closest("section"));
  }
}

// Whether any group in detail could fill a plot: one that none can is left out altogether.
function everHasRows(kind, argument) {
  const all = Object.keys(details).map(Number), chosen = new Map(slots);
  slots.clear();
  for (const group of all) slots.set(group, 0);
  const rows = rowsOf[kind](argument);
  slots.clear();
  for (const [group, slot] of chosen) slots.set(group, slot);
  return rows.length > 0;
}

// On paper all of them are wanted, also those that no one has scrolled to.
addEventListener("beforeprint", () => plots.forEach((plot) => plot.draw()));
const refreshPlots = () => plots.forEach((plot) => plot.refresh());
listeners.push(refreshPlots);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", refreshPlots);
let lastWidth = innerWidth, settling;
addEventListener("resize", () => {
  clearTimeout(settling);
  settling = setTimeout(() => { if (innerWidth !== lastWidth) { lastWidth = innerWidth; refreshPlots(); } }, 150);
});

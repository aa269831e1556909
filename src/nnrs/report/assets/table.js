// A table that can be sorted, filtered and paged; rows are numbers, and a column says what stands in each.

const PAGE = 25;
const collator = new Intl.Collator(undefined, { numeric: true });

class Table {
  // columns: {label, about, better, value(row), cell(row)}; the first names the row. options: detail(row), name(row).
  constructor(place, options) {
    Object.assign(this, { place, sort: null, page: 0, filter: "", opened: new Set(), ...options });
    this.head = make("thead");
    this.body = make("tbody");
    this.pager = make("div", { className: "pager" });
    place.append(make("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": options.label },
      make("table", {}, this.head, this.body)), this.pager);
    this.use(options.columns, options.rows);
  }

  use(columns, rows) {
    const kept = this.sort && columns.find((item) => item.label === this.sort.label);
    Object.assign(this, { columns, rows, page: 0, sort: kept ? this.sort : null });
    this.opened.clear();
    this.draw();
  }

  ordered() {
    const needle = this.filter.toLowerCase();
    const rows = needle ? this.rows.filter((row) => this.name(row).toLowerCase().includes(needle)) : [...this.rows];
    if (!this.sort) return rows;
    const { value } = this.columns.find((item) => item.label === this.sort.label), sign = this.sort.up ? 1 : -1;
    const missing = (item) => item === null || item === undefined;
    return rows.sort((a, b) => {
      const x = value(a), y = value(b);
      if (missing(x) || missing(y)) return missing(x) - missing(y); // at the end, whichever way
      return sign * (typeof x === "number" ? x - y : collator.compare(x, y)) || a - b;
    });
  }

  sortBy(column) {
    const first = column.better !== "higher"; // the best on top
    this.sort = { label: column.label, up: this.sort?.label === column.label ? !this.sort.up : first };
    this.page = 0;
    this.draw();
    [...this.head.querySelectorAll("button")].find((button) => button.textContent === column.label)?.focus();
  }

  draw() {
    const rows = this.ordered(), pages = Math.max(1, Math.ceil(rows.length / PAGE));
    this.page = Math.min(this.page, pages - 1);
    this.head.replaceChildren(make("tr", {}, ...this.columns.map((column) => this.heading(column))));
    const visible = rows.slice(this.page * PAGE, (this.page + 1) * PAGE);
    this.body.replaceChildren(...visible.flatMap((row) => this.lines(row)));
    this.drawPager(rows.length, pages);
  }

  heading(column) {
    const sorted = this.sort?.label === column.label ? (this.sort.up ? "ascending" : "descending") : "none";
    const better = { lower: "lower is better", higher: "higher is better" }[column.better];
    return make("th", { scope: "col", "aria-sort": sorted, title: column.about ?? "", className: column.words ? "words" : "" },
      make("button", { type: "button", onclick: () => this.sortBy(column) }, column.label),
      better ? make("small", {}, better) : null);
  }

  lines(row) {
    const [first, ...others] = this.columns;
    const line = make("tr", {}, make("th", { scope: "row" }, this.detail ? this.opener(row, first) : first.cell(row)),
      ...others.map((column) => column.cell(row)));
    if (!this.opened.has(row)) return [line];
    const inside = make("div", { className: "inside" }, this.detail(row));
    return [line, make("tr", { className: "detail" }, make("td", { colSpan: this.columns.length }, inside))];
  }

  opener(row, column) {
    const open = this.opened.has(row);
    const button = make("button", { type: "button", className: "open", "aria-expanded": String(open) }, this.name(row));
    button.addEventListener("click", () => {
      if (!this.opened.delete(row)) this.opened.add(row);
      this.draw();
      [...this.body.querySelectorAll(".open")].find((other) => other.textContent === this.name(row))?.focus();
    });
    return make("div", { className: "rowname" }, column.cell(row), button);
  }

  drawPager(count, pages) {
    this.pager.hidden = pages < 2;
    const step = (by, text) => make("button", { type: "button", disabled: this.page + by < 0 || this.page + by >= pages,
      onclick: () => { this.page += by; this.draw(); } }, text);
    const first = this.page * PAGE + 1, last = Math.min(count, first + PAGE - 1);
    this.pager.replaceChildren(make("span", {}, `${first}–${last} of ${count.toLocaleString("en")}`),
      step(-1, "Previous"), step(1, "Next"));
  }
}

const numeric = (value, digits) => make("td", {}, make("b", {}, fixed(value, digits)));

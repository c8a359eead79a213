// Draws lines of rates, histograms and stacked bars. Each class has a `node` to place and an `update` to call.

// The seconds that a drawing of a series shows: all that the page has seen, at least half a minute.
function shownSeconds(series, now) {
  const first = series.points.length > 0 ? series.points[0].at : now;
  return Math.min(Math.max(now - first, 30), HISTORY_SECONDS);
}

// Returns the path of one line of a series in a box of `width` by `height`; the right edge is now.
function linePath(series, line, now, most, width, height) {
  const seconds = shownSeconds(series, now);
  let path = '';
  let isDrawing = false;
  for (const {at, values} of series.points) {
    if (!values) {
      isDrawing = false;
      continue;
    }
    const x = width * (1 - (now - at) / seconds);
    const y = height - 1 - (most > 0 ? values[line] / most : 0) * (height - 2);
    path += `${isDrawing ? 'L' : 'M'}${x.toFixed(1)} ${y.toFixed(1)}`;
    isDrawing = true;
  }
  return path;
}

// Returns the outline of the area below that line.
function areaPath(series, line, now, most, width, height) {
  return linePath(series, line, now, most, width, height).replace(/M([\d.-]+) [\d.-]+[^M]*?([\d.-]+) [\d.-]+(?=M|$)/g,
      (part, first, last) => `${part}L${last} ${height}L${first} ${height}Z`);
}

// A small line without axes, with the current value beside it.
class Sparkline {
  constructor(line, className) {
    this.line = line;
    this.path = svgElement('path', {class: `line ${className}`});
    this.area = svgElement('path', {class: `area ${className}`});
    this.value = element('span', {class: 'value'});
    this.node = element('span', {class: 'spark'}, this.value,
        svgElement('svg', {viewBox: '0 0 100 24', preserveAspectRatio: 'none', 'aria-hidden': 'true'}, this.area, this.path));
  }

  update(series, now, rate) {
    setText(this.value, rateText(rate));
    if (!series) return;
    const most = 1.1 * series.largest(this.line);
    this.path.setAttribute('d', linePath(series, this.line, now, most, 100, 24));
    this.area.setAttribute('d', areaPath(series, this.line, now, most, 100, 24));
  }
}

// Two lines on one scale, with the scale and a legend. The pointer shows the values of a moment.
class RateChart {
  constructor(names) {
    this.names = names;
    this.classes = ['inserts', 'samples'];
    this.paths = this.classes.map((name) => svgElement('path', {class: `line ${name}`}));
    this.most = element('span', {class: 'scale'});
    this.since = element('span');
    this.line = element('i', {class: 'moment', hidden: true});
    this.readout = element('span', {class: 'readout'});
    this.pointer = null;  // its place as a share of the width
    this.values = names.map(() => element('b'));
    this.svg = svgElement('svg', {viewBox: '0 0 400 100', preserveAspectRatio: 'none', role: 'img'},
        svgElement('path', {class: 'grid', d: 'M0 1H400M0 50H400M0 99H400'}), ...this.paths);
    this.node = element('div', {class: 'chart'},
        element('div', {class: 'legend'}, ...names.map((name, i) => element('span', {class: 'key'},
            element('i', {class: `swatch ${this.classes[i]}`}), `${name} `, this.values[i]))),
        this.plot = element('div', {class: 'plot'}, this.svg, this.most, this.line),
        element('div', {class: 'axis'}, this.since, this.readout, element('span', {}, 'now')));
    this.plot.addEventListener('pointermove', (event) => {
      const box = this.plot.getBoundingClientRect();
      this.pointer = (event.clientX - box.left) / box.width;
      this.showMoment();
    });
    this.plot.addEventListener('pointerleave', () => {
      this.pointer = null;
      this.showMoment();
    });
  }

  // Shows the update nearest to the pointer.
  showMoment() {
    const {series, now, pointer} = this;
    const points = pointer === null || !series ? [] : series.points.filter(({values}) => values);
    setHidden(this.line, points.length === 0);
    setText(this.readout, '');
    if (points.length === 0) return;
    const seconds = shownSeconds(series, now);
    const at = now - (1 - pointer) * seconds;
    const nearest = points.reduce((best, point) => (Math.abs(point.at - at) < Math.abs(best.at - at) ? point : best));
    setPercent(this.line, 'left', 1 - (now - nearest.at) / seconds);
    setText(this.readout, `${durationText(Math.round(now - nearest.at))} ago: ${
        this.names.map((name, i) => `${rateText(nearest.values[i])} ${name}`).join(', ')} per second`);
  }

  update(series, now, rates) {
    this.series = series;
    this.now = now;
    const most = series ? series.largest() : 0;
    this.paths.forEach((path, line) => {
      path.setAttribute('d', series ? linePath(series, line, now, most, 400, 100) : '');
    });
    setText(this.most, most > 0 ? `${rateText(most)}/s` : '');
    const seconds = series ? shownSeconds(series, now) : HISTORY_SECONDS;
    setText(this.since, `${durationText(seconds)} ago`);
    rates.forEach((rate, i) => setText(this.values[i], `${rateText(rate)}/s`));
    setAttribute(this.svg, 'aria-label', `Rates of the last ${durationText(seconds)}: ${
        this.names.map((name, i) => `${rateText(rates[i])} ${name} per second`).join(', ')}; at most ${rateText(most)}`);
    this.showMoment();
  }
}

// The distribution of a value over ranges: {bounds: upper bounds, counts: one for each bound and one above the last}.
class Histogram {
  constructor(title, format) {
    this.title = title;
    this.format = format;
    this.bars = element('div', {class: 'bars', role: 'img'});
    this.first = element('span');
    this.last = element('span');
    this.summary = element('span', {class: 'muted'});
    this.node = element('figure', {class: 'histogram'},
        element('figcaption', {}, element('span', {class: 'caption'}, title), this.summary), this.bars,
        element('div', {class: 'axis'}, this.first, this.last));
  }

  update(histogram) {
    const bounds = histogram?.bounds ?? [];
    const counts = (histogram?.counts ?? []).map((count) => Math.max(0, Number(count) || 0));
    const total = counts.reduce((sum, count) => sum + count, 0);
    setClass(this.node, 'empty', total === 0);
    if (total === 0) {
      setChildren(this.bars, []);
      setText(this.summary, 'no items');
      setAttribute(this.bars, 'aria-label', `${this.title}: no items`);
      setText(this.first, '');
      setText(this.last, '');
      return;
    }
    // Leaves out empty ranges at both ends.
    let from = 0;
    let to = counts.length - 1;
    while (counts[from] === 0) ++from;
    while (counts[to] === 0) --to;
    const most = Math.max(...counts);
    while (this.bars.children.length > to - from + 1) this.bars.lastElementChild.remove();
    while (this.bars.children.length < to - from + 1) this.bars.append(element('span', {class: 'bar'}, element('i')));
    for (let i = from; i <= to; ++i) {
      const bar = this.bars.children[i - from];
      setPercent(bar.firstChild, 'height', counts[i] > 0 ? Math.max(counts[i] / most, 0.02) : 0);
      setAttribute(bar, 'title', `${this.rangeText(bounds, i)}: ${countText(counts[i])} (${percentText(counts[i] / total)})`);
    }
    setText(this.first, from > 0 ? this.format(bounds[from - 1]) : `≤ ${this.format(bounds[0])}`);
    setText(this.last, to < bounds.length ? this.format(bounds[to]) : `> ${this.format(bounds[bounds.length - 1])}`);
    let middle = 0;
    for (let sum = counts[0]; sum < total / 2; sum += counts[middle]) ++middle;
    const median = `half ${middle < bounds.length ? `≤ ${this.format(bounds[middle])}`
                                                  : `> ${this.format(bounds[bounds.length - 1])}`}`;
    setText(this.summary, median);
    setAttribute(this.bars, 'aria-label', `${this.title} of ${counted(total, 'item')}: ${median}`);
  }

  rangeText(bounds, i) {
    if (i >= bounds.length) return `above ${this.format(bounds[bounds.length - 1])}`;
    return i === 0 ? `at most ${this.format(bounds[0])}` : `${this.format(bounds[i - 1])} to ${this.format(bounds[i])}`;
  }
}

// Parts of a whole: update([{name, value, className, title}], whole, mark). `mark` is a limit {value, title} or null.
class StackedBar {
  constructor(format) {
    this.format = format;
    this.bar = element('div', {class: 'stack', role: 'img'});
    this.mark = element('i', {class: 'mark'});
    this.legend = element('ul', {class: 'legend'});
    this.node = element('div', {class: 'stacked'}, element('div', {class: 'stack-box'}, this.bar, this.mark), this.legend);
    this.parts = new Map();
  }

  update(parts, whole, mark = null) {
    for (const part of parts) {
      let entry = this.parts.get(part.name);
      if (!entry) {
        const value = element('b');
        entry = {
          value,
          segment: element('i', {class: `segment ${part.className}`}),
          key: element('li', {class: 'key', title: part.title}, element('i', {class: `swatch ${part.className}`}),
              element('span', {dir: 'auto'}, `${part.name} `), value),
        };
        this.parts.set(part.name, entry);
      }
      setPercent(entry.segment, 'width', whole > 0 ? part.value / whole : 0);
      setText(entry.value, this.format(part.value));
    }
    const entries = parts.map((part) => this.parts.get(part.name));
    setChildren(this.bar, entries.map((entry) => entry.segment));
    setChildren(this.legend, entries.map((entry) => entry.key));
    setHidden(this.mark, mark === null);
    if (mark) {
      setPercent(this.mark, 'left', whole > 0 ? mark.value / whole : 1);
      setAttribute(this.mark, 'title', mark.title);
    }
    setAttribute(this.bar, 'aria-label',
        parts.map((part) => `${part.name} ${this.format(part.value)}`).join(', ') + (mark ? `; ${mark.title}` : ''));
  }
}

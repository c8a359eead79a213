// Keeps the recent rates of each table, computed from the differences of its counters between two updates.

const HISTORY_SECONDS = 120;

class Series {
  constructor() {
    this.points = [];  // {at, values}, values null where the page has no data: before it connected, during a restart
    this.last = null;  // {at, counts}
  }

  // Adds the counts of an update at `at` seconds. Returns the rates since the one before, or null if there is none.
  add(at, counts, isNewServer) {
    const last = isNewServer ? null : this.last;
    this.last = {at, counts};
    const seconds = last ? at - last.at : 0;
    // Counters restart after a reset of the table.
    const isUsable = last && seconds > 0 && counts.every((count, i) => count >= last.counts[i]);
    const values = isUsable ? counts.map((count, i) => (count - last.counts[i]) / seconds) : null;
    this.addRates(at, values);
    return values;
  }

  addRates(at, values) {
    this.points.push({at, values});
    while (this.points.length > 2 && this.points[1].at < at - HISTORY_SECONDS) this.points.shift();
  }

  breakLine(at) {
    if (this.points.length > 0) this.points.push({at, values: null});
  }

  // Returns the largest of the recent values, of one line or of all.
  largest(line) {
    let most = 0;
    for (const {values} of this.points) {
      if (values) most = Math.max(most, line === undefined ? Math.max(...values) : values[line]);
    }
    return most;
  }
}

class History {
  constructor() {
    this.series = new Map();
    this.startedSeconds = null;
    this.now = 0;
  }

  // Adds the counters of an update, and forgets tables that are gone. The server's rates, which are over ten seconds, serve
  // until there is a second update.
  add(info) {
    const isNewServer = this.startedSeconds !== null && info.started_seconds !== this.startedSeconds;
    this.startedSeconds = info.started_seconds ?? null;
    this.now = isKnown(info.now_seconds) ? info.now_seconds : Date.now() / 1000;
    const present = new Set();
    const find = (key) => {
      present.add(key);
      if (!this.series.has(key)) this.series.set(key, new Series());
      return this.series.get(key);
    };
    const add = (key, counts) => find(key).add(this.now, counts, isNewServer);
    // The sum of the rates, not the rate of the sums: tables come and go.
    const total = [0, 0];
    let hasRates = false;
    for (const table of info.tables) {
      const rates = add(`table ${table.name}`, [table.inserts, table.samples]);
      table.rates = rates ?? [table.inserts_per_second, table.samples_per_second];
      table.rates.forEach((rate, i) => { total[i] += rate ?? 0; });
      hasRates ||= rates !== null;
    }
    for (const table of info.row_tables) {
      const rates = add(`rows ${table.name}`, [table.created, table.acknowledged]);
      table.rates = rates ?? [null, null];
      table.rates.forEach((rate, i) => { total[i] += rate ?? 0; });
      hasRates ||= rates !== null;
    }
    info.rates = total;
    find('total').addRates(this.now, hasRates ? total : null);
    const traffic = info.traffic ?? {};
    info.traffic_rates = add('traffic', [traffic.bytes_in ?? 0, traffic.bytes_out ?? 0]) ?? [null, null];
    for (const key of this.series.keys()) {
      if (!present.has(key)) this.series.delete(key);
    }
  }

  // Marks that updates are missing from here on.
  breakLines() {
    for (const series of this.series.values()) series.breakLine(this.now);
  }

  of(key) {
    return this.series.get(key);
  }
}

// The rate limiter of a table: where its cursor is, what it means in words, and a drawing of both.
//
// The cursor is inserts × samples_per_insert − samples. A sample lowers it by 1 and needs cursor − 1 ≥ min_diff and
// min_size_to_sample items; an insert raises it by samples_per_insert and needs cursor ≤ max_diff afterwards, or a table
// that has not reached its minimum size.

const REASONS = {
  min_size: 'too few items to sample',
  too_many_samples: 'too many samples per insert',
  too_many_inserts: 'too many inserts per sample',
  memory: 'the store is full',
  queued: 'behind earlier calls',
  leased: 'items are leased',
  none: 'about to go on',
};

const reasonText = (reason) => REASONS[reason] ?? cleanText(reason);

// Explains why calls wait: what would let them go on.
function explainWait(reason, table) {
  const limiter = table.rate_limiter;
  switch (reason) {
    case 'min_size':
      return `The table has ${countText(table.size)} of the ${countText(limiter.min_size_to_sample)} items that samples need ` +
          '(min_size_to_sample).';
    case 'too_many_samples': {
      const inserts = Math.ceil((limiter.min_diff + 1 - table.cursor) / limiter.samples_per_insert);
      return `Samples are ahead: the cursor is ${numberText(table.cursor)}, and a sample would take it below its lower ` +
          `bound, ${numberText(limiter.min_diff)}. ` +
          `${counted(Math.max(inserts, 1), 'more insert')} would allow the next sample.`;
    }
    case 'too_many_inserts': {
      const samples = Math.ceil(table.cursor + limiter.samples_per_insert - limiter.max_diff);
      return `Inserts are ahead: the cursor is ${numberText(table.cursor)}, and an insert would take it above its upper ` +
          `bound, ${numberText(limiter.max_diff)}. ` +
          `${counted(Math.max(samples, 1), 'more sample')} would allow the next insert.`;
    }
    case 'memory':
      return 'The server has stored max_bytes. Inserts go on when items are removed, or with a higher limit.';
    case 'leased':
      return `Consumers hold leases on ${countText(table.leased_items)} of ${counted(table.size, 'item')}. ` +
          'Samples go on when they acknowledge or release them.';
    case 'queued':
      return 'Earlier calls of the same kind are served first.';
    default:
      return '';
  }
}

// Waits below this are how a limiter keeps both sides in step; longer ones are worth a colour.
const LONG_WAIT_SECONDS = 1;

const hasLongWait = (table) => table.longest_wait_seconds >= LONG_WAIT_SECONDS;

// Returns a short text for the list of tables: "2 samples wait: too few items to sample". Empty if nothing waits.
function waitSummary(table) {
  const parts = [];
  for (const [kind, count, reason] of [['insert', table.waiting_inserts, table.insert_wait_reason],
                                       ['sample', table.waiting_samples, table.sample_wait_reason]]) {
    if (count > 0) parts.push(`${counted(count, kind)} ${count === 1 ? 'waits' : 'wait'}: ${reasonText(reason)}`);
  }
  return parts.join('; ');
}

// Returns what the limiter does now, as sentences.
function limiterSentences(table) {
  if (table.closed) return ['The table is closed.'];
  const limiter = table.rate_limiter;
  const sentences = [];
  for (const [kind, count, reason] of [['Insert', table.waiting_inserts, table.insert_wait_reason],
                                       ['Sample', table.waiting_samples, table.sample_wait_reason]]) {
    if (count > 0) sentences.push(`${kind}s wait: ${reasonText(reason)}. ${explainWait(reason, table)}`.trim());
  }
  if (sentences.length > 0) return sentences;
  const missing = limiter.min_size_to_sample - table.size;
  if (missing > 0) {
    return [`Nothing waits. Samples will wait until the table has ${countText(limiter.min_size_to_sample)} items; ` +
            `${counted(missing, 'item')} ${missing === 1 ? 'is' : 'are'} missing.`];
  }
  const room = [];
  if (isBounded(limiter.max_diff)) {
    const inserts = Math.max(0, Math.floor((limiter.max_diff - table.cursor) / limiter.samples_per_insert));
    room.push(`${counted(inserts, 'more insert')} without a sample`);
  }
  if (isBounded(limiter.min_diff)) {
    room.push(`${counted(Math.max(0, Math.floor(table.cursor - limiter.min_diff)), 'more sample')} without an insert`);
  }
  if (room.length === 0) return ['Nothing waits. The limiter requires only a minimum size, which the table has reached.'];
  return [`Nothing waits. The limiter allows ${room.join(', or ')}.`];
}

// Returns the shares of the width at which the drawing has its marks; null for marks that it does not have.
function limiterPlaces(table) {
  const limiter = table.rate_limiter;
  const hasMin = isBounded(limiter.min_diff);
  const hasMax = isBounded(limiter.max_diff);
  const {cursor} = table;
  if (!hasMin && !hasMax) {
    const needed = Math.max(limiter.min_size_to_sample, 1);
    return {isFill: true, min: null, max: null, cursor: Math.min(table.size / needed, 1)};
  }
  const unit = Math.max(limiter.samples_per_insert * limiter.min_size_to_sample, 10);
  let low = hasMin ? limiter.min_diff : Math.min(limiter.max_diff - unit, 2 * cursor - limiter.max_diff);
  let high = hasMax ? limiter.max_diff : Math.max(limiter.min_diff + unit, 2 * cursor - limiter.min_diff);
  const margin = Math.max((high - low) * 0.12, 1e-9);
  low = Math.min(low - margin, cursor - margin / 3);
  high = Math.max(high + margin, cursor + margin / 3);
  const place = (value) => (value - low) / (high - low);
  return {
    isFill: false,
    min: hasMin ? place(limiter.min_diff) : null,
    max: hasMax ? place(limiter.max_diff) : null,
    cursor: place(cursor),
  };
}

// The track with its two ends, in which samples or inserts wait, and the cursor.
class LimiterTrack {
  constructor(className) {
    this.low = element('i', {class: 'end low'});
    this.high = element('i', {class: 'end high'});
    this.fill = element('i', {class: 'fill'});
    this.cursor = element('i', {class: 'cursor'});
    this.node = element('div', {class: `track ${className}`, role: 'img'}, this.low, this.high, this.fill, this.cursor);
  }

  update(table) {
    const places = limiterPlaces(table);
    setHidden(this.fill, !places.isFill);
    setHidden(this.cursor, places.isFill);
    setHidden(this.low, places.min === null);
    setHidden(this.high, places.max === null);
    if (places.isFill) setPercent(this.fill, 'width', places.cursor);
    setPercent(this.cursor, 'left', places.cursor);
    if (places.min !== null) setPercent(this.low, 'width', places.min);
    if (places.max !== null) setPercent(this.high, 'width', 1 - places.max);
    setClass(this.node, 'waits', hasLongWait(table));
    setClass(this.node, 'incomplete', table.size < table.rate_limiter.min_size_to_sample);
    setAttribute(this.node, 'aria-label', this.describe(table));
    setAttribute(this.node, 'title', this.describe(table));
    return places;
  }

  describe(table) {
    const limiter = table.rate_limiter;
    const size = `${countText(table.size)} of at least ${counted(limiter.min_size_to_sample, 'item')} to sample`;
    if (!isBounded(limiter.min_diff) && !isBounded(limiter.max_diff)) return `Limiter: ${size}`;
    return `Limiter: cursor ${numberText(table.cursor)} between ${numberText(limiter.min_diff ?? -Infinity)} and ${
        numberText(limiter.max_diff ?? Infinity)}; ${size}`;
  }
}

// The drawing with numbers, the explanation, and who waits.
class LimiterView {
  constructor() {
    this.track = new LimiterTrack('large');
    this.min = element('span', {class: 'tick'});
    this.max = element('span', {class: 'tick'});
    this.cursor = element('span', {class: 'tick now'});
    this.lowText = element('span', {}, 'samples wait');
    this.highText = element('span', {}, 'inserts wait');
    this.sentences = element('div', {class: 'sentences'});
    this.waiters = new Lines('waiters');
    this.ticks = element('div', {class: 'ticks', 'aria-hidden': 'true'}, this.min, this.cursor, this.max);
    this.ends = element('div', {class: 'axis', 'aria-hidden': 'true'}, this.lowText, this.highText);
    this.node = element('div', {class: 'limiter'}, this.sentences, this.ticks, this.track.node, this.ends, this.waiters.node);
  }

  update(table, waiters) {
    const limiter = table.rate_limiter;
    const places = this.track.update(table);
    setHidden(this.min, places.min === null);
    setHidden(this.max, places.max === null);
    setText(this.min, numberText(limiter.min_diff));
    setText(this.max, numberText(limiter.max_diff));
    if (places.min !== null) setPercent(this.min, 'left', places.min);
    if (places.max !== null) setPercent(this.max, 'left', places.max);
    setPercent(this.cursor, 'left', places.cursor);
    setText(this.cursor, places.isFill ? countText(table.size) : numberText(table.cursor));
    // The cursor's number hides a bound's that it would cover.
    const isNear = (place) => place !== null && Math.abs(place - places.cursor) < 0.1;
    setClass(this.min, 'covered', isNear(places.min));
    setClass(this.max, 'covered', isNear(places.max));
    setText(this.lowText, places.isFill ? '0 items' : places.min === null ? 'no lower bound' : '← samples wait');
    setText(this.highText, places.isFill ? `samples need ${counted(limiter.min_size_to_sample, 'item')}`
                                         : places.max === null ? 'no upper bound' : 'inserts wait →');
    const sentences = limiterSentences(table);
    while (this.sentences.children.length > sentences.length) this.sentences.lastElementChild.remove();
    while (this.sentences.children.length < sentences.length) this.sentences.append(element('p'));
    sentences.forEach((text, i) => setText(this.sentences.children[i], text));
    setClass(this.sentences, 'waiting', hasLongWait(table));

    const mine = waiters.filter((waiter) => waiter.table === table.name);
    const lines = mine.slice(0, 8).map((waiter) => `${clientText(waiter)} waits to ${
        waiter.operation === 'insert' ? `insert ${counted(waiter.count, 'item')}` : `take ${counted(waiter.count, 'sample')}`
    }, for ${durationText(waiter.seconds)}: ${reasonText(waiter.reason)}`);
    const others = Math.max(table.waiting_inserts + table.waiting_samples, mine.length) - lines.length;
    if (others > 0 && lines.length > 0) lines.push(`and ${counted(others, 'other')}`);
    this.waiters.update(lines);
  }
}

function clientText(waiter) {
  const address = cleanText(waiter.address, 80) || 'the server’s own process';
  const name = cleanText(waiter.client, 80);
  return name ? `${name} at ${address}` : address;
}

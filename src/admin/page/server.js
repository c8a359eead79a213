// What concerns the server as a whole: memory, disk, totals, clients, checkpoints, connections, errors.

class Overview {
  constructor() {
    this.chart = new RateChart(['inserts', 'samples']);
    byId('throughput').append(this.chart.node);
    this.memory = new StackedBar(bytesText);
    this.memoryText = element('p', {class: 'figure'});
    this.memoryTerms = new TermList();
    byId('memory').append(this.memoryText, this.memory.node, this.memoryTerms.node);
    this.waits = new Lines('waiters');
    this.waitText = element('p', {class: 'figure'});
    byId('waits').append(this.waitText, this.waits.node);
    this.storage = new TermList();
    this.storageText = element('p', {class: 'figure'});
    this.storageError = element('p', {class: 'sentence'});
    byId('storage').append(this.storageText, this.storageError, this.storage.node);
    this.checkpoint = new TermList();
    this.checkpointText = element('p', {class: 'sentence'});
    byId('checkpoint').append(this.checkpointText, this.checkpoint.node);
    this.connections = new TermList();
    byId('connections').append(this.connections.node);
    this.traffic = new TermList();
    byId('traffic').append(this.traffic.node);
    this.errors = new TermList();
    this.noErrors = element('p', {class: 'muted'}, 'No call has failed since the start.');
    byId('errors').append(this.noErrors, this.errors.node);
  }

  update(info) {
    this.chart.update(rateHistory.of('total'), rateHistory.now, info.rates);
    this.updateMemory(info);
    this.updateStorage(info);
    this.updateWaits(info);
    this.updateCheckpoint(info.checkpoint, rateHistory.now);
    const {connections = {}, streams = {}, traffic = {}} = info;
    this.connections.update([
      ['Same host (local)', countText(connections.local)], ['Network (gRPC)', countText(connections.grpc)],
      ['Same process', countText(connections.inproc)],
      ['Insert streams', countText(streams.insert)], ['Sample streams', countText(streams.sample)],
      ['Single calls', countText(streams.calls)], ['Row calls', countText(streams.rows)],
    ]);
    const withRate = (total, rate) => `${bytesText(total)}${isKnown(rate) ? `, ${bytesText(Math.round(rate))}/s` : ''}`;
    this.traffic.update([
      ['Received', withRate(traffic.bytes_in, info.traffic_rates[0])],
      ['Sent', withRate(traffic.bytes_out, info.traffic_rates[1])],
      ['Messages received', countText(traffic.messages_in)], ['Messages sent', countText(traffic.messages_out)],
    ]);
    const errors = Object.entries(info.errors ?? {}).filter(([, count]) => count > 0).sort(([, a], [, b]) => b - a);
    setHidden(this.noErrors, errors.length > 0);
    this.errors.update(errors.slice(0, 20).map(([code, count]) => [cleanText(code, 60), countText(count)]));
  }

  updateMemory(info) {
    const memory = info.memory ?? {};
    const limit = memory.limit ?? info.max_bytes;
    const bytesOf = (...names) => names.reduce((sum, name) => sum + Math.max(0, memory[name] ?? 0), 0);
    const stored = bytesOf('stored');
    const index = bytesOf('index');
    const inFlight = bytesOf('parked', 'waiting', 'in_transit', 'receiving', 'replies', 'sessions');
    const used = stored + index + inFlight;
    const other = Math.max(0, (info.resident_bytes ?? 0) - used);
    const hasLimit = isKnown(limit) && limit > 0 && limit < 1e18;
    const hasMaxBytes = isKnown(info.max_bytes) && info.max_bytes > 0 && info.max_bytes < 1e18;
    setText(this.memoryText, bytesText(used) + (hasLimit ? ` of ${bytesText(limit)} (${percentText(used / limit)})` : ''));
    // Inserts wait or evict when 13/16 of the limit are kept.
    setClass(this.memoryText, 'wait', (hasLimit && used > 0.75 * limit) || (hasMaxBytes && stored > 0.9 * info.max_bytes));
    this.memory.update([
      {name: 'stored', value: stored, className: 'stored',
       title: 'Chunks that items and rows refer to; max_bytes bounds these'},
      {name: 'index', value: index, className: 'index', title: 'Slots, keys and selectors of tables'},
      {name: 'in flight', value: inFlight, className: 'unreferenced',
       title: 'Data that is received, waits, is sent, or is kept for a checkpoint'},
      {name: 'rest of the process', value: other, className: 'other',
       title: 'Resident memory that the server does not count: buffers, the program'},
    ], Math.max(hasLimit ? limit * 1.02 : 0, used + other),
    hasLimit ? {value: limit, title: `the server may use ${bytesText(limit)} (memory_limit)`} : null);
    const part = (name) => (memory[name] > 0 ? bytesText(memory[name]) : null);
    this.memoryTerms.update([
      ['Resident memory of the process', isKnown(info.resident_bytes) ? bytesText(info.resident_bytes) : null],
      ['Limit of stored data', hasMaxBytes ? bytesText(info.max_bytes) : 'none'], ['Chunks', countText(info.chunks)],
      ['Kept for a checkpoint', part('parked')], ['Waiting items', part('waiting')], ['Chunks in transit', part('in_transit')],
      ['Being received', part('receiving')], ['Being sent', part('replies')],
    ]);
  }

  updateStorage(info) {
    const hasStorage = isKnown(info.storage_memory_limit);
    setHidden(byId('storage'), !hasStorage);
    if (!hasStorage) return;
    const error = cleanText(info.storage_error, 400);
    const hasLost = info.storage_lost_chunks > 0;
    const ofLimit = (bytes, limit) => bytesText(bytes) + (isKnown(limit) ? ` of ${bytesText(limit)}` : '');
    setText(this.storageText, `${bytesText(info.storage_disk_bytes)} on disk`);
    setClass(this.storageText, 'wait', error !== '' || hasLost);
    setHidden(this.storageError, error === '');
    setText(this.storageError, `No data can be moved to disk: ${error}`);
    this.storage.update([
      ['In memory', ofLimit(info.storage_memory_bytes, info.storage_memory_limit)],
      ['Files', ofLimit(info.storage_file_bytes, info.storage_disk_limit)],
      ['Moved to disk', bytesText(info.storage_written_bytes)], ['Read from disk', bytesText(info.storage_read_bytes)],
      ['Chunks lost', hasLost ? countText(info.storage_lost_chunks) : null],
    ]);
  }

  updateWaits(info) {
    let calls = 0;
    let hasLong = false;
    const lines = [];
    for (const table of info.tables) {
      calls += table.waiting_inserts + table.waiting_samples;
      const text = waitSummary(table);
      hasLong ||= text !== '' && hasLongWait(table);
      if (text) lines.push([table.longest_wait_seconds ?? 0, `${nameText(table.name, 60)}: ${text}`]);
    }
    for (const table of info.row_tables) {
      calls += table.waiting_writes + table.waiting_claims + table.waiting_reservations;
      const texts = rowWaits(table, 120);
      hasLong ||= texts.length > 0 && hasLongWait(table);
      if (texts.length > 0) lines.push([table.longest_wait_seconds ?? 0, `${nameText(table.name, 60)}: ${texts.join('; ')}`]);
    }
    lines.sort(([a], [b]) => b - a);
    setText(this.waitText, calls === 0 ? 'Nothing waits' : `${counted(calls, 'call')} ${calls === 1 ? 'waits' : 'wait'}`);
    setClass(this.waitText, 'wait', hasLong);
    const shown = lines.slice(0, 4).map(([seconds, text]) => `${text}${seconds > 0 ? ` (${durationText(seconds)})` : ''}`);
    if (lines.length > shown.length) shown.push(`and ${counted(lines.length - shown.length, 'other table')}`);
    this.waits.update(shown);
  }

  updateCheckpoint(checkpoint, now) {
    if (!checkpoint) {
      setText(this.checkpointText, 'The server has no checkpoint folder: its data is lost when it stops.');
      setClass(this.checkpointText, 'wait', false);
      this.checkpoint.update([]);
      return;
    }
    const hasFailed = Boolean(checkpoint.last_error);
    setText(this.checkpointText, checkpoint.running ? 'A checkpoint is being written.'
        : hasFailed ? `The last attempt failed: ${cleanText(checkpoint.last_error, 400)}`
        : isKnown(checkpoint.last_time_seconds)
            ? `Saved ${durationText(now - checkpoint.last_time_seconds)} ago.` : 'No checkpoint was written yet.');
    setClass(this.checkpointText, 'wait', hasFailed && !checkpoint.running);
    this.checkpoint.update([
      ['Last', isKnown(checkpoint.last_time_seconds) ? momentText(checkpoint.last_time_seconds) : 'none yet'],
      ['Took', isKnown(checkpoint.last_duration_seconds) ? durationText(checkpoint.last_duration_seconds) : null],
      ['Size', isKnown(checkpoint.last_bytes) ? bytesText(checkpoint.last_bytes) : null],
      ['Written', countText(checkpoint.count)], ['Failed', countText(checkpoint.failures)],
      ['Free on the disk', isKnown(checkpoint.disk_free_bytes) ? bytesText(checkpoint.disk_free_bytes) : null],
      ['Folder', cleanText(checkpoint.path, 300)],
    ]);
  }
}

const TRANSPORTS = {local: 'same host', grpc: 'gRPC', inproc: 'same process'};

const clientColumns = [
  {id: 'name', label: 'Client', sort: (client) => client.name,
   make: () => nameCell((client) => client.name, () => '')},
  {id: 'transport', label: 'Transport', sort: (client) => client.transport,
   make: () => textCell((client) => TRANSPORTS[client.transport] ?? cleanText(client.transport, 20))},
  {id: 'address', label: 'Address', sort: (client) => client.address,
   make: () => textCell((client) => cleanText(client.address, 80) || UNKNOWN)},
  {id: 'writers', label: 'Writers', isNumber: true, sort: (client) => client.writers,
   make: () => textCell((client) => countText(client.writers))},
  {id: 'samplers', label: 'Samplers', isNumber: true, sort: (client) => client.samplers,
   make: () => textCell((client) => countText(client.samplers))},
  {id: 'received', label: 'Received', isNumber: true, isOptional: true, sort: (client) => client.bytes_in,
   hint: 'By the server from this client',
   make: () => textCell((client) => bytesText(client.bytes_in))},
  {id: 'sent', label: 'Sent', isNumber: true, isOptional: true, sort: (client) => client.bytes_out,
   hint: 'By the server to this client',
   make: () => textCell((client) => bytesText(client.bytes_out))},
  {id: 'connected', label: 'Connected', isNumber: true, sort: (client) => client.connected_seconds,
   make: () => textCell((client) => durationText(client.connected_seconds))},
];

// Gives clients with the same name and address different keys.
function numberClients(clients) {
  const seen = new Map();
  for (const client of clients) {
    const id = JSON.stringify([client.name, client.address, client.transport]);
    const number = (seen.get(id) ?? 0) + 1;
    seen.set(id, number);
    client.key = `${id} ${number}`;
  }
  return clients;
}

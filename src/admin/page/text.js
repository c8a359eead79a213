// Formats values for people. Every function returns plain text; `UNKNOWN` stands for what the server does not know.

const UNKNOWN = '–';
const NBSP = '\u00a0';  // keeps a number and its unit on one line

// The server writes null for what has no bound; the largest double means the same.
const isBounded = (value) => typeof value === 'number' && Math.abs(value) < 1e300;

const isKnown = (value) => typeof value === 'number' && Number.isFinite(value);

const plural = (count, noun) => (count === 1 ? noun : `${noun}s`);

// Shortens large numbers: 12.3 k, 4.56 M.
function compactText(value) {
  if (!isKnown(value)) return UNKNOWN;
  const units = ['', 'k', 'M', 'G', 'T', 'P', 'E'];
  let unit = 0;
  let rest = Math.abs(value);
  while (rest >= 999.5 && unit + 1 < units.length) {
    rest /= 1000;
    ++unit;
  }
  const digits = rest === 0 || (unit === 0 && Number.isInteger(rest)) ? 0 : rest < 9.995 ? 2 : rest < 99.95 ? 1 : 0;
  const text = rest.toFixed(digits) + (unit > 0 ? NBSP + units[unit] : '');
  return value < 0 ? `−${text}` : text;
}

// Writes a count with all its digits, unless there are too many to read.
function countText(value) {
  if (!isKnown(value)) return UNKNOWN;
  return Math.abs(value) < 1e12 ? Math.round(value).toLocaleString('en-US') : compactText(value);
}

const counted = (count, noun) => `${countText(count)} ${plural(count, noun)}`;

// A bound of a count; those that no table reaches are shown as such.
function boundText(value) {
  return isKnown(value) && value < 1e15 ? countText(value) : '∞';
}

function rateText(value) {
  if (!isKnown(value)) return UNKNOWN;
  if (value >= 9999.5) return compactText(value);
  return value >= 99.95 || value === 0 ? Math.round(value).toLocaleString('en-US') : value.toFixed(1);
}

// Any number, as short as it is exact enough.
function numberText(value) {
  if (typeof value !== 'number') return UNKNOWN;
  if (Number.isNaN(value)) return 'NaN';
  if (!isBounded(value)) return value > 0 ? '∞' : '−∞';
  if (Number.isInteger(value)) return Math.abs(value) < 1e12 ? value.toLocaleString('en-US') : value.toPrecision(4);
  const size = Math.abs(value);
  if (size < 1e-4 || size >= 1e9) return value.toExponential(2);
  return String(Number(value.toPrecision(4)));
}

function bytesText(value) {
  if (!isKnown(value)) return UNKNOWN;
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];
  let unit = 0;
  let rest = value;
  while (Math.abs(rest) >= 1024 && unit + 1 < units.length) {
    rest /= 1024;
    ++unit;
  }
  const isWhole = unit === 0 || Number.isInteger(rest);
  return `${isWhole ? Math.round(rest) : rest.toFixed(Math.abs(rest) < 10 ? 2 : 1)}${NBSP}${units[unit]}`;
}

function durationText(seconds) {
  if (!isKnown(seconds)) return UNKNOWN;
  if (seconds <= 0) return `0${NBSP}s`;
  const digits = (value) => String(Number(value.toPrecision(3)));
  if (seconds < 0.9995e-3) return `${digits(seconds * 1e6)}${NBSP}µs`;
  if (seconds < 0.9995) return `${digits(seconds * 1e3)}${NBSP}ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1)}${NBSP}s`;
  const whole = Math.round(seconds);
  for (const [unit, name, part, partName] of [[86400, 'd', 3600, 'h'], [3600, 'h', 60, 'min'], [60, 'min', 1, 's']]) {
    if (whole < unit) continue;
    const rest = Math.floor((whole % unit) / part);
    return `${countText(Math.floor(whole / unit))}${NBSP}${name}${rest > 0 ? ` ${rest}${NBSP}${partName}` : ''}`;
  }
  return `${whole}${NBSP}s`;
}

const percentText = (share) => `${share > 0 && share < 0.1 ? (share * 100).toFixed(1) : Math.round(share * 100)}${NBSP}%`;

// Names, tags and reasons may contain anything. Control characters, and those that change the direction of the text
// around them, are replaced; long texts are cut.
function cleanText(value, most = 200) {
  const text = String(value ?? '').replace(
      // eslint-disable-next-line no-control-regex
      /[\u0000-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g, '\ufffd');
  if (text.length <= most) return text;
  const characters = Array.from(text.slice(0, 2 * most));
  return characters.length <= most && text.length <= 2 * most ? text : `${characters.slice(0, most).join('')}…`;
}

// Names of tables and clients; an empty one must still be visible.
const nameText = (name, most = 120) => cleanText(name, most) || '(no name)';

// A moment as the local time of the reader, with the date unless it is today.
function momentText(seconds) {
  if (!isKnown(seconds)) return UNKNOWN;
  const moment = new Date(seconds * 1000);
  if (Number.isNaN(moment.getTime())) return UNKNOWN;
  const time = moment.toLocaleTimeString('en-GB');
  return moment.toDateString() === new Date().toDateString() ? time : `${moment.toLocaleDateString('en-CA')} ${time}`;
}

/**
 * Times as clocks of a zone show them, and when that is. A time on a clock is kept as the `Date` whose UTC fields show the same.
 *
 * Clocks that are set forward leave times out; those count as the same time after the start of the day, which is past the gap: 02:30
 * where 02:00 to 03:00 is left out is 03:30. Clocks that are set back show times twice.
 */

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;
const formats = new Map<string, Intl.DateTimeFormat>();

/** Whether clocks of this name are known here. Offsets are not names. */
export function isTimeZone(name: string): boolean {
  if (!/^[A-Za-z]/.test(name)) return false;
  try {
    formatOf(name);
    return true;
  } catch {
    return false;
  }
}

/** What clocks of the zone show at an instant. */
export function clockAt(instantMs: number, timeZone: string): number {
  return instantMs + offsetAt(instantMs, timeZone);
}

/** When clocks of the zone show a time: at its first instant, and at the last one where they show it twice. */
export function instantsOf(clockMs: number, timeZone: string): { readonly first: number; readonly last: number } {
  // No zone changes its clocks twice within two days.
  const [before, after] = [offsetAt(clockMs - dayMs, timeZone), offsetAt(clockMs + dayMs, timeZone)];
  const found = [clockMs - before, clockMs - after].filter((instant) => clockAt(instant, timeZone) === clockMs);
  if (found.length === 0) return { first: clockMs - before, last: clockMs - before };
  return { first: Math.min(...found), last: Math.max(...found) };
}

/** Whether clocks of the zone were or will be changed within some hours of an instant. */
export function isNearChange(instantMs: number, timeZone: string): boolean {
  const offset = offsetAt(instantMs, timeZone);
  return [-4, 4].some((hours) => offsetAt(instantMs + hours * hourMs, timeZone) !== offset);
}

/** How far clocks of the zone are ahead of UTC. */
function offsetAt(instantMs: number, timeZone: string): number {
  if (timeZone === 'UTC') return 0;
  const text = formatOf(timeZone).format(instantMs);
  const [, sign, hours, minutes, seconds] = /GMT(?:([+-])(\d\d):(\d\d)(?::(\d\d))?)?$/.exec(text) ?? [];
  const size = Number(hours ?? 0) * hourMs + Number(minutes ?? 0) * 60_000 + Number(seconds ?? 0) * 1_000;
  return sign === '-' ? -size : size;
}

function formatOf(timeZone: string): Intl.DateTimeFormat {
  let format = formats.get(timeZone);
  if (format === undefined) {
    format = new Intl.DateTimeFormat('en-US', { timeZone, timeZoneName: 'longOffset' });
    formats.set(timeZone, format);
  }
  return format;
}

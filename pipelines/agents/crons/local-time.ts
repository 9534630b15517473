/**
 * Converts between instants and local times of a time zone. A local time ("clock" in names) is represented by the epoch
 * milliseconds of the instant at which UTC clocks show the same time.
 *
 * When clocks are set forward, some local times do not exist. Such a time is moved forward by the size of the gap: if
 * 02:00 to 03:00 is skipped, 02:30 means 03:30. When clocks are set back, some local times occur twice.
 */

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;
const formats = new Map<string, Intl.DateTimeFormat>();

/** Whether the runtime supports this time zone name. Offsets such as `+02:00` are not names. */
export function isTimeZone(name: string): boolean {
  if (!/^[A-Za-z]/.test(name)) return false;
  try {
    formatFor(name);
    return true;
  } catch {
    return false;
  }
}

/** Returns the local time of the zone at an instant. */
export function localTimeAt(instantMs: number, timeZone: string): number {
  return instantMs + offsetAt(instantMs, timeZone);
}

/** Returns the instants of a local time. `first` and `last` differ only if the local time occurs twice. */
export function findInstants(clockMs: number, timeZone: string): { readonly first: number; readonly last: number } {
  // Assumes that no zone changes its clocks twice within two days.
  const [before, after] = [offsetAt(clockMs - dayMs, timeZone), offsetAt(clockMs + dayMs, timeZone)];
  const found = [clockMs - before, clockMs - after].filter((instant) => localTimeAt(instant, timeZone) === clockMs);
  if (found.length === 0) return { first: clockMs - before, last: clockMs - before };
  return { first: Math.min(...found), last: Math.max(...found) };
}

/** Whether the UTC offset of the zone four hours before or after an instant differs from the offset at the instant. */
export function isNearClockChange(instantMs: number, timeZone: string): boolean {
  const offset = offsetAt(instantMs, timeZone);
  return [-4, 4].some((hours) => offsetAt(instantMs + hours * hourMs, timeZone) !== offset);
}

/** Returns the UTC offset of the zone at an instant, in milliseconds; positive east of UTC. */
function offsetAt(instantMs: number, timeZone: string): number {
  if (timeZone === 'UTC') return 0;
  const text = formatFor(timeZone).format(instantMs);
  const [, sign, hours, minutes, seconds] = /GMT(?:([+-])(\d\d):(\d\d)(?::(\d\d))?)?$/.exec(text) ?? [];
  const size = Number(hours ?? 0) * hourMs + Number(minutes ?? 0) * 60_000 + Number(seconds ?? 0) * 1_000;
  return sign === '-' ? -size : size;
}

function formatFor(timeZone: string): Intl.DateTimeFormat {
  let format = formats.get(timeZone);
  if (format === undefined) {
    format = new Intl.DateTimeFormat('en-US', { timeZone, timeZoneName: 'longOffset' });
    formats.set(timeZone, format);
  }
  return format;
}

/** Ends a line that was cut. */
export const cutMark = '…';

const maxLineCharacters = 4_000;
const maxLinesPerSecond = 1_000;

/**
 * Splits the output of code that is not trusted into lines, within bounds of memory and CPU time: a line may never end,
 * and code may print in a loop. A line of more than 4,000 characters is cut, and then ends with {@link cutMark}. Passes
 * up to 1,000 lines per second and drops the others, and blank lines.
 */
export function readLines(streams: readonly (NodeJS.ReadableStream | null)[], onLine: (line: string) => void): void {
  let second = 0;
  let lines = 0;
  const pass = (line: string) => {
    if (line.trim() === '') return;
    const now = Math.floor(performance.now() / 1_000);
    if (now !== second) [second, lines] = [now, 0];
    lines += 1;
    if (lines <= maxLinesPerSecond) {
      onLine(line.length > maxLineCharacters ? line.slice(0, maxLineCharacters) + cutMark : line);
    } else if (lines === maxLinesPerSecond + 1)
      onLine(`lines after the first ${maxLinesPerSecond} of this second are dropped`);
  };
  for (const stream of streams) {
    let rest = '';
    stream?.setEncoding('utf8').on('data', (text: string) => {
      const parts = (rest + text).split(/[\r\n]+/);
      // One character more than is passed on, so that the line counts as cut.
      rest = (parts.pop() ?? '').slice(0, maxLineCharacters + 1);
      for (const part of parts) pass(part);
    });
    // `close` and not `end`: a stream that fails does not end.
    stream?.once('close', () => pass(rest));
  }
}

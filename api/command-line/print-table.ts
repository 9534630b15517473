/** Prints rows as a table. The first row is the header. Cells are truncated to `maxCellLength`. */
export function printTable(rows: readonly (readonly (string | undefined)[])[], maxCellLength = 60): void {
  const cells = rows.map((row) => row.map((cell) => shorten(toPrintable(cell ?? ''), maxCellLength)));
  const widths = cells[0]?.map((_, column) => Math.max(...cells.map((row) => row[column]?.length ?? 0))) ?? [];
  for (const row of cells) {
    console.log(
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    );
  }
}

/** Replaces control characters, so that text from other users cannot control the terminal. */
export function toPrintable(text: string): string {
  return text.replace(/\p{C}/gu, '\u{FFFD}');
}

function shorten(text: string, length: number): string {
  return text.length <= length ? text : `${text.slice(0, length - 1)}…`;
}

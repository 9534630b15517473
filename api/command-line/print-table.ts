/** Prints rows in columns, the first row being their heads. Cells are cut to `longestCell`, and lines are not padded at their end. */
export function printTable(rows: readonly (readonly (string | undefined)[])[], longestCell = 60): void {
  const cells = rows.map((row) => row.map((cell) => shorten(printable(cell ?? ''), longestCell)));
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

/** Text of strangers must not steer the terminal. */
export function printable(text: string): string {
  return text.replace(/\p{C}/gu, '\u{FFFD}');
}

function shorten(text: string, length: number): string {
  return text.length <= length ? text : `${text.slice(0, length - 1)}…`;
}

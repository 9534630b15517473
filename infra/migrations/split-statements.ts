/** What a piece of SQL can begin with, longest first: what is not code, the end of a statement, or one character of code. */
const token =
  /--[^\n]*|#[ !][^\n]*|\/\*[\s\S]*?(?:\*\/|$)|'(?:[^'\\]|\\[\s\S]|'')*'|"(?:[^"\\]|\\[\s\S]|"")*"|`(?:[^`\\]|\\[\s\S]|``)*`|;|[\s\S]/g;

/**
 * The statements of ClickHouse SQL, without the semicolons between them; those in strings, names and comments separate
 * nothing. Comments go, because ClickHouse gets one statement at a time and a comment alone is none.
 * Source: lexer of ClickHouse (strings take backslash escapes, `#` followed by space or `!` begins a comment).
 */
export function splitStatements(sql: string): string[] {
  const statements: string[] = [];
  let current = '';
  for (const [piece] of sql.matchAll(token)) {
    if (piece === ';') {
      statements.push(current);
      current = '';
    } else {
      current += isComment(piece) ? ' ' : piece;
    }
  }
  statements.push(current);
  return statements.map((statement) => statement.trim()).filter((statement) => statement !== '');
}

function isComment(piece: string): boolean {
  return piece.length > 1 && (piece.startsWith('--') || piece.startsWith('#') || piece.startsWith('/*'));
}

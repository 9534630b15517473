/** One token of SQL: a comment, a string or quoted name, the end of a statement, or any other single character. */
const tokenPattern =
  /--[^\n]*|#[ !][^\n]*|\/\*[\s\S]*?(?:\*\/|$)|'(?:[^'\\]|\\[\s\S]|'')*'|"(?:[^"\\]|\\[\s\S]|"")*"|`(?:[^`\\]|\\[\s\S]|``)*`|;|[\s\S]/g;

/**
 * Splits ClickHouse SQL into statements at semicolons, except those in strings, names and comments. Removes comments, because
 * ClickHouse runs one statement at a time, and a comment alone is not a statement.
 * Source: lexer of ClickHouse (strings may have backslash escapes; `#` followed by a space or `!` starts a comment).
 */
export function splitStatements(sql: string): string[] {
  const statements: string[] = [];
  let current = '';
  for (const [token] of sql.matchAll(tokenPattern)) {
    if (token === ';') {
      statements.push(current);
      current = '';
    } else {
      current += isComment(token) ? ' ' : token;
    }
  }
  statements.push(current);
  return statements.map((statement) => statement.trim()).filter((statement) => statement !== '');
}

function isComment(token: string): boolean {
  return token.length > 1 && (token.startsWith('--') || token.startsWith('#') || token.startsWith('/*'));
}

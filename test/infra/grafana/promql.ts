/** Keywords of PromQL. Source: the grammar in the Prometheus documentation. */
const words = new Set(
  'and or unless bool offset start end inf nan on ignoring by without group_left group_right atan2'.split(' '),
);
/** Keywords that precede a list of labels in parentheses. */
const beforeLabels = new Set(['on', 'ignoring', 'by', 'without', 'group_left', 'group_right']);

const token =
  /\s+|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\$\w+|\d[\w.]*(?:[+-]\d+)?|[A-Za-z_:][\w:]*|=~|!~|[!=><]=?|[-+*/%^@(),{}[\]]/y;

/**
 * Returns the names of metrics and labels in a PromQL expression.
 * @throws if it contains unknown characters or unbalanced parentheses.
 */
export function parseNames(expr: string): { readonly metrics: readonly string[]; readonly labels: readonly string[] } {
  const tokens = tokensOf(expr);
  const metrics: string[] = [];
  const labels: string[] = [];
  const open: string[] = [];
  let labelListDepth: number | undefined;
  for (const [at, text] of tokens.entries()) {
    if ('({['.includes(text)) {
      if (text === '(' && beforeLabels.has(tokens[at - 1] ?? '')) labelListDepth = open.length;
      open.push(text);
    } else if (')}]'.includes(text)) {
      if (open.pop() !== '({['[')}]'.indexOf(text)]) throw new Error(`parentheses do not match in ${expr}`);
      if (labelListDepth === open.length) labelListDepth = undefined;
    } else if (/^[A-Za-z_:]/.test(text)) {
      if (open.at(-1) === '{' || labelListDepth !== undefined) labels.push(text);
      else if (open.at(-1) !== '[' && !isWordOrFunction(text, tokens, at)) metrics.push(text);
    }
  }
  if (open.length > 0) throw new Error(`parentheses do not match in ${expr}`);
  return { metrics, labels };
}

/**
 * Returns whether a token is a keyword or a function. A function precedes `(`; an aggregation may also precede `by (…)`
 * or `without (…)`.
 */
function isWordOrFunction(text: string, tokens: readonly string[], at: number): boolean {
  return words.has(text.toLowerCase()) || ['(', 'by', 'without'].includes(tokens[at + 1] ?? '');
}

function tokensOf(expr: string): string[] {
  const tokens: string[] = [];
  token.lastIndex = 0;
  while (token.lastIndex < expr.length) {
    const from = token.lastIndex;
    const [text] = token.exec(expr) ?? [];
    if (text === undefined) throw new Error(`no character of PromQL at ${from} in ${expr}`);
    if (text.trim() !== '') tokens.push(text);
  }
  return tokens;
}

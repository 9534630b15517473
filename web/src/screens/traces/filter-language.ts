/**
 * Completion of the filter language. A test compares the operators and fields with those of the parser
 * (`pipelines/runs/filter`).
 */
const combinators = ['and', 'or', 'not'] as const;
export const operators = ['eq', 'neq', 'gt', 'gte', 'lt', 'lte', 'in', 'has', 'like', 'exists', 'search'] as const;
export const fields = [
  'name',
  'status',
  'run_type',
  'latency',
  'error',
  'tags',
  'metadata_key',
  'metadata_value',
  'total_tokens',
  'total_cost',
  'start_time',
  'end_time',
  'first_token_time',
  'thread_id',
  'feedback_key',
  'feedback_score',
  'feedback_value',
  'feedback_source',
  'input_key',
  'input_value',
  'output_key',
  'output_value',
  'inputs',
  'outputs',
  'metadata',
  'prompt_tokens',
  'completion_tokens',
  'prompt_cost',
  'completion_cost',
  'is_root',
  'execution_order',
  'id',
  'trace_id',
  'parent_run_id',
  'reference_example_id',
  'session_id',
] as const;

/** Values of the fields that have few. */
const choices: ReadonlyMap<string, readonly string[]> = new Map([
  ['status', ['"success"', '"error"', '"pending"']],
  ['run_type', ['"chain"', '"llm"', '"tool"', '"retriever"', '"embedding"', '"prompt"', '"parser"']],
  ['is_root', ['true', 'false']],
  ['error', ['null']],
]);

export interface Completion {
  /** Start of the word that an option replaces. */
  readonly start: number;
  readonly options: readonly string[];
}

/** Returns the completions at `caret`. `values` contains frequent values by field. */
export function completeFilter(
  text: string,
  caret: number,
  values: ReadonlyMap<string, readonly string[]> = new Map(),
): Completion {
  const { call, field, start, isClosed } = findContext(text.slice(0, caret));
  if (isClosed) return { start, options: [] };
  const word = text.slice(start, caret).toLowerCase();
  const isCondition = call === undefined || combinators.some((name) => name === call);
  const all = isCondition
    ? [...operators, ...combinators].map((name) => `${name}(`)
    : field === undefined
      ? fields.map((name) => `${name}, `)
      : (choices.get(field) ?? values.get(field)?.map((value) => JSON.stringify(value)) ?? []);
  const options = all.filter((option) => option.toLowerCase().startsWith(word) && option !== word);
  return { start, options: options.slice(0, 12) };
}

interface Context {
  readonly call?: string;
  readonly field?: string;
  readonly start: number;
  readonly isClosed: boolean;
}

/**
 * Finds the call at the end of `text`, its first argument if a comma follows it, the start of the last word, and
 * whether `text` ends with a complete call.
 */
function findContext(text: string): Context {
  const open: { call: string; field?: string }[] = [];
  let word = 0;
  let isClosed = false;
  let quote: string | undefined;
  for (let at = 0; at < text.length; at++) {
    const character = text[at] as string;
    if (quote !== undefined) {
      if (character === '\\') at++;
      else if (character === quote) quote = undefined;
    } else if (character === '"' || character === "'") quote = character;
    else if (character === '(') {
      open.push({ call: text.slice(word, at).trim() });
      isClosed = false;
      word = at + 1;
    } else if (character === ')') {
      open.pop();
      isClosed = true;
      word = at + 1;
    } else if (character === ',') {
      isClosed = false;
      const inner = open.at(-1);
      if (inner && inner.field === undefined) inner.field = text.slice(word, at).trim();
      word = at + 1;
    } else if (character === ' ' && word === at) word = at + 1;
  }
  return { ...open.at(-1), start: word, isClosed };
}

/** Converts typed text to an expression: an expression stays unchanged; any other text becomes a search. */
export function toExpression(text: string): string {
  const typed = text.trim();
  return typed === '' || /^\w+\(/.test(typed) ? typed : `search(${JSON.stringify(typed)})`;
}

/** Returns the position, starting at 0, in an error message of the parser; undefined if the message contains none. */
export function findPosition(message: string): number | undefined {
  const found = /at character (\d+)/.exec(message);
  return found ? Number(found[1]) - 1 : undefined;
}

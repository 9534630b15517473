import type { Random } from '../../../histories/random.ts';
import type { Tree } from './expected-runs.ts';

/** Values that occur both in stored runs and in generated conditions, so that conditions match some of the runs. */
export interface Pools {
  readonly texts: readonly string[];
  readonly keys: readonly string[];
  readonly ids: readonly string[];
  readonly times: readonly string[];
}

const textOperators = ['eq', 'neq', 'in', 'like'];
const comparisonOperators = ['eq', 'neq', 'gt', 'gte', 'lt', 'lte', 'in'];
const numbers = [0, 1, -1, 0.5, 2.5, 3, 5, 10, 100, 1e21, 1e-7];

type DrawFunction = (random: Random, pools: Pools) => unknown;
interface Kind {
  readonly fields: readonly string[];
  readonly operators: readonly string[];
  readonly draw: DrawFunction;
  readonly isNullable?: boolean;
}

const number: DrawFunction = (random) => random.pick(numbers);
const text: DrawFunction = (random, { texts }) => random.pick(texts);
const id: DrawFunction = (random, { ids }) => random.pick(ids);
const choice =
  (...values: string[]): DrawFunction =>
  (random) =>
    random.pick(values);

const kinds: readonly Kind[] = [
  { fields: ['id', 'trace_id', 'session_id'], operators: ['eq', 'neq', 'in'], draw: id },
  { fields: ['parent_run_id', 'reference_example_id'], operators: ['eq', 'neq', 'in'], draw: id, isNullable: true },
  { fields: ['name'], operators: textOperators, draw: text },
  { fields: ['error', 'thread_id'], operators: textOperators, draw: text, isNullable: true },
  { fields: ['run_type'], operators: ['eq', 'neq', 'in'], draw: choice('chain', 'llm', 'tool') },
  { fields: ['status'], operators: ['eq', 'neq', 'in'], draw: choice('success', 'error', 'pending') },
  { fields: ['start_time'], operators: comparisonOperators, draw: (random, { times }) => random.pick(times) },
  {
    fields: ['end_time', 'first_token_time'],
    operators: comparisonOperators,
    draw: (random, { times }) => random.pick(times),
    isNullable: true,
  },
  {
    fields: ['latency'],
    operators: comparisonOperators,
    draw: choice('5s', '1.5s', '250ms', '2m', '1h'),
    isNullable: true,
  },
  { fields: ['latency'], operators: comparisonOperators, draw: (random) => random.pick([0, 0.25, 1.5, 5, 120]) },
  { fields: ['is_root'], operators: ['eq', 'neq'], draw: (random) => random.chance(0.5) },
  { fields: ['execution_order'], operators: ['eq', 'neq'], draw: () => 1 },
  { fields: ['tags'], operators: ['has', ...textOperators], draw: text },
  { fields: ['total_tokens', 'prompt_tokens', 'completion_tokens'], operators: comparisonOperators, draw: number },
  {
    fields: ['total_cost', 'prompt_cost', 'completion_cost'],
    operators: comparisonOperators,
    draw: number,
    isNullable: true,
  },
  { fields: ['metadata'], operators: ['exists'], draw: (random, { keys }) => random.pick(keys) },
  {
    fields: ['metadata'],
    operators: ['has'],
    draw: (random, { keys, texts }) =>
      JSON.stringify({ [random.pick(keys)]: random.pick<unknown>([...texts, 1, true, null, {}]) }),
  },
];

/** Fields of the families; a field that is drawn more often is listed more often. */
const pairKinds: readonly Kind[] = ['metadata', 'input', 'output', 'feedback'].flatMap((family): Kind[] => [
  { fields: [`${family}_key`], operators: textOperators, draw: (random, { keys }) => random.pick(keys) },
  { fields: [`${family}_value`], operators: textOperators, draw: text },
  { fields: [`${family}_value`], operators: comparisonOperators, draw: number },
  { fields: [`${family}_value`], operators: ['eq', 'neq'], draw: (random) => random.chance(0.5) },
  ...(family === 'feedback'
    ? [
        { fields: ['feedback_score'], operators: comparisonOperators, draw: number },
        { fields: ['feedback_score'], operators: ['eq', 'neq'], draw: (random: Random) => random.chance(0.5) },
        { fields: ['feedback_source'], operators: textOperators, draw: choice('api', 'app', 'model') },
      ]
    : []),
]);

export function drawTree(random: Random, pools: Pools, depth = 3): Tree {
  if (depth > 0 && random.chance(0.5)) {
    if (random.chance(0.2)) return { kind: 'not', term: drawTree(random, pools, depth - 1) };
    const kind = random.pick(['and', 'and', 'or'] as const);
    if (kind === 'and' && random.chance(0.4)) return { kind, terms: drawPairGroup(random, pools) };
    return { kind, terms: Array.from({ length: random.between(1, 3) }, () => drawTree(random, pools, depth - 1)) };
  }
  if (random.chance(0.1)) {
    const field = random.pick([undefined, undefined, 'name', 'error', 'inputs', 'outputs']);
    return { kind: 'search', field, text: String(text(random, pools)).slice(0, random.between(0, 12)) };
  }
  return drawComparison(random, pools, random.pick(random.chance(0.4) ? pairKinds : kinds));
}

/** Draws conditions on one family that apply to the same pair. */
function drawPairGroup(random: Random, pools: Pools): Tree[] {
  const family = random.pick(['metadata', 'input', 'output', 'feedback']);
  const familyKinds = pairKinds.filter(({ fields }) => fields[0]?.startsWith(family));
  const terms = Array.from({ length: random.between(1, 3) }, () =>
    drawComparison(random, pools, random.pick(familyKinds)),
  );
  return random.chance(0.3) ? [...terms, drawComparison(random, pools, random.pick(kinds))] : terms;
}

function drawComparison(random: Random, pools: Pools, { fields, operators, draw, isNullable }: Kind): Tree {
  const operator = random.pick(operators);
  const field = random.pick(fields);
  const value = () => draw(random, pools);
  if (operator === 'in') {
    return { kind: 'compare', operator, field, value: Array.from({ length: random.between(1, 4) }, value) };
  }
  if (operator === 'like') {
    const drawn = String(value());
    const cut = random.int(drawn.length + 1);
    const pattern = random.pick([
      drawn,
      `${drawn.slice(0, cut)}%`,
      `%${drawn.slice(cut)}`,
      `%${drawn.slice(cut, cut + 2)}%`,
      `_${drawn.slice(1)}`,
    ]);
    return { kind: 'compare', operator, field, value: pattern };
  }
  const isNull = isNullable && (operator === 'eq' || operator === 'neq') && random.chance(0.3);
  return { kind: 'compare', operator, field, value: isNull ? null : value() };
}

/**
 * Writes a tree as an expression, with either kind of quotes, and with escapes and spaces wherever the grammar allows
 * them.
 */
export function printTree(random: Random, tree: Tree): string {
  const space = () => random.pick(['', '', ' ', '\n\t ']);
  const call = (name: string, parts: readonly string[]) =>
    `${name}${space()}(${space()}${parts.join(`${space()},${space()}`)}${space()})`;
  const field = (name: string) => (random.chance(0.1) ? printText(random, name) : name);
  switch (tree.kind) {
    case 'and':
    case 'or':
      return call(
        tree.kind,
        tree.terms.map((term) => printTree(random, term)),
      );
    case 'not':
      return call('not', [printTree(random, tree.term)]);
    case 'search':
      return call('search', [...(tree.field ? [field(tree.field)] : []), printText(random, tree.text)]);
    case 'compare':
      return call(tree.operator, [field(tree.field), printValue(random, tree.value)]);
  }
}

function printValue(random: Random, value: unknown): string {
  if (Array.isArray(value)) return `[${value.map((item) => printValue(random, item)).join(random.pick([',', ' , ']))}]`;
  return typeof value === 'string' ? printText(random, value) : String(value);
}

const escapes: Readonly<Record<string, string>> = { '\n': '\\n', '\r': '\\r', '\t': '\\t', '\b': '\\b', '\f': '\\f' };

function printText(random: Random, value: string): string {
  const quote = random.pick(['"', "'"]);
  const characters = Array.from({ length: value.length }, (_, at) => {
    const unit = value[at] as string;
    if (unit === quote || unit === '\\') return `\\${unit}`;
    if (random.chance(0.1)) return `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`;
    return random.chance(0.5) ? (escapes[unit] ?? unit) : unit;
  });
  return `${quote}${characters.join('')}${quote}`;
}

// House rule: identifiers, comments, messages and docs use the terms of docs/reference/glossary.md. This check refuses the
// words that the glossary replaces and that no sentence needs otherwise.
import { readFileSync } from 'node:fs';
import ts from 'typescript';
import { applyRules, commentsOf, filesLike, parse, textsOf } from './source-texts.mjs';

/** Names: each pattern is applied to the words of an identifier, in lower case and separated by spaces. */
const names = [
  ['warehouse', 'clickhouse'],
  ['park|parked|unpark', 'defer'],
  ['(?<!dead )letters?', 'dead letter'],
  ['bury|buried', 'move to the dead-letter queue'],
  ['faults?', 'error'],
  ['touched', 'dirty'],
  ['(?<!a11y )lanes?', 'partition queue'],
  ['holes?', 'gap'],
  ['desks?|seats?', 'process, worker slot'],
  ['patience', 'timeout'],
  ['pieces?|stretch|stretches', 'chunk, part, slice'],
  ['credits?', 'send window'],
  ['beats?', 'heartbeat'],
  ['rooms?', 'limit'],
  ['surroundings', 'condition, scope'],
  ['^(most|least|longest|shortest|usual) \\w+', 'max, min, default'],
  ['\\w+ ports$', 'deps'],
];
/** Texts: comments, messages and pages. */
const texts = [
  ['warehouse', 'ClickHouse'],
  ['(un)?parked|unparks?|parks', 'deferred'],
  ['bur(y|ies|ied)', 'move to the dead-letter queue'],
  ['(question|auth) desks?|kept workers?|desks?|seats?', 'query worker, auth process, worker handle'],
  ['patience', 'timeout'],
  ['whoever|somebody', 'the process or client by name'],
  ['(a|the|each|every|one|its) cuts?(?! of)', 'insert batch'],
  ['usage notes?', 'dirty hours'],
  ['let go|lets go|gives? way|takes? up|took up|taken up', 'release, requeue, claim'],
  ['pieces?|stretch(es)?', 'chunk, part, slice'],
  ['(?<!a11y )lanes?', 'partition queue'],
  ['holes?', 'gap'],
  ['credits?', 'send window'],
  ['surroundings', 'condition, scope'],
  ['judges|judged|judging', 'validate'],
  ['reads? out|reading out', 'read, parse'],
  ['(what|goes|went|go|gone) wrong', 'error, failure, cause'],
  ['under way', 'in flight'],
  ['(no|enough|has|have|makes?) room', 'limit, quota'],
  ['how many there may be', 'limit, quota'],
  ['comes? again|came again', 'is redelivered, is repeated'],
  ['known traces?|recent records?|following readers?', 'trace location, ring buffer, subscription'],
  ['written down', 'stored, in-flight insert'],
  ['done with everything', 'consumed up to'],
  ['where the topic ends', 'log-end offset'],
  ['within time', 'deadline, timeout'],
  ["browser's question", 'preflight'],
];
/** Proper names, and words with another meaning. */
const exempt = [
  /^test\/house\/check-glossary\.mjs$/,
  /^docs\/reference\/glossary\.md$/,
  // Fault injection is what the field calls it, and ports of the network are ports.
  /^test\/crash\/(chaos|fault-proxy)/,
];
const allowedNames =
  /^(find free|free|with free|allowed|broker|exposed) ports$|fault proxy|chaos fault|any fault|least loaded/;

const isExempt = (file) => exempt.some((pattern) => pattern.test(file));
const sources = filesLike(/^(schemas|infra|pipelines|api|web|docs|test|bench)\/.*\.(tsx?|mts|mjs|cjs|js)$/).filter(
  (file) => !isExempt(file),
);
const pages = filesLike(/\.(md|sql)$|^infra\/grafana\/.*\.json$/).filter((file) => !isExempt(file));

const words = (identifier) =>
  identifier
    .replaceAll(/([a-z\d])([A-Z])/g, '$1 $2')
    .replaceAll(/[_$#]+/g, ' ')
    .toLowerCase();

const isFunctionName = ({ parent, text }) =>
  /^[#a-z]/.test(text) &&
  (ts.isFunctionDeclaration(parent) ||
    ts.isMethodDeclaration(parent) ||
    (ts.isVariableDeclaration(parent) && parent.initializer !== undefined && ts.isArrowFunction(parent.initializer)));

function identifiersOf(file) {
  const tree = parse(file);
  const found = [];
  const visit = (node) => {
    if (ts.isIdentifier(node) || ts.isPrivateIdentifier(node)) {
      const line = tree.getLineAndCharacterOfPosition(node.getStart()).line + 1;
      found.push({ file, line, text: words(node.text).trim(), isFunction: isFunctionName(node) });
    }
    ts.forEachChild(node, visit);
  };
  visit(tree);
  return found;
}

const linesOf = (file) =>
  readFileSync(file, 'utf8')
    .split('\n')
    .map((text, index) => ({ file, line: index + 1, text }));

const rulesOf = (list, flags) =>
  list.map(([pattern, instead]) => {
    const expression = new RegExp(`(?<![\\w-])(?:${pattern})(?![\\w-])`, flags);
    return { rule: `use "${instead}" (glossary)`, breaks: (text) => expression.test(text) && !allowedNames.test(text) };
  });

const identifiers = [];
const sourceTexts = [];
for (const file of sources) {
  identifiers.push(...identifiersOf(file));
  sourceTexts.push(...commentsOf(file), ...textsOf(file));
}
applyRules(rulesOf(names, ''), identifiers);
applyRules(
  [
    {
      rule: 'a function is named with a verb (glossary)',
      breaks: (text) => /^(?!is )\w+ of$/.test(text),
      example: 'bytes of',
    },
  ],
  identifiers.filter(({ file, isFunction }) => isFunction && /^(infra|pipelines|api|schemas|web)\//.test(file)),
);
applyRules(rulesOf(texts, 'i'), [...sourceTexts, ...pages.flatMap(linesOf)]);

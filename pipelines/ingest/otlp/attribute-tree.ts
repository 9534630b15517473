import { writeUnwrappedValue, writeValue } from './any-value.ts';
import type { RoleName } from './attribute-roles.ts';
import type { AttributeList } from './span.ts';
import type { SpanContext } from './span-context.ts';

/** A tree built from flattened attribute names such as `0.message.role`. A leaf is the index of an attribute. */
export type AttributeTree = Map<string, AttributeTree | number>;

/** Names that only wrap the single object below an index. For example, `0.message.role` is the role of element 0. */
const wrapperNames = new Set(['message', 'message_content', 'tool_call', 'document', 'embedding']);
const indexPattern = /^\d{1,9}$/;

/** Maximum depth of a path; no convention has more than eight levels. */
const maxPathDepth = 16;
/**
 * Maximum number of inner nodes of the trees of one span. The limit exists because the trees of a span are built in one
 * step, and because a node takes much more memory than its name in the body.
 */
const maxNodesPerSpan = 50_000;

/**
 * Adds a leaf at a path such as `0.message.role`. Returns false if the path is too deep or passes through another leaf,
 * or if the span has too many nodes.
 */
export function addLeaf(context: SpanContext, tree: AttributeTree, path: string, leaf: number): boolean {
  if (context.treeNodes >= maxNodesPerSpan || exceedsDepth(path)) return false;
  let node = tree;
  let start = 0;
  for (let dot = path.indexOf('.'); dot >= 0; dot = path.indexOf('.', start)) {
    const name = path.slice(start, dot);
    let next = node.get(name);
    if (next === undefined) {
      next = new Map();
      node.set(name, next);
      context.treeNodes++;
    } else if (typeof next === 'number') return false;
    node = next;
    start = dot + 1;
  }
  const last = path.slice(start);
  if (node.has(last)) return false;
  node.set(last, leaf);
  return true;
}

function exceedsDepth(path: string): boolean {
  let dots = 0;
  for (let dot = path.indexOf('.'); dot >= 0; dot = path.indexOf('.', dot + 1)) if (++dots >= maxPathDepth) return true;
  return false;
}

/**
 * Builds the tree of all attributes of a family and marks them as taken; returns undefined if the span has no such
 * attributes.
 */
export function consumeTree(context: SpanContext, role: RoleName): AttributeTree | undefined {
  const { span } = context;
  if (span.find(role) < 0) return undefined;
  const tree: AttributeTree = new Map();
  for (let index = span.find(role); index < span.attributes.count; index++) {
    const attribute = span.attributes.names[index]!.role;
    if (attribute.role !== role) continue;
    const path = span.attributes.names[index]!.text.slice(attribute.prefixBytes);
    if (addLeaf(context, tree, path, index)) span.take(index);
  }
  return tree.size > 0 ? tree : undefined;
}

/**
 * Writes a tree whose leaves are attributes in `attributes`. If all names of a level are numbers, the level becomes an
 * array, in order and without gaps.
 */
export function writeTree(
  context: SpanContext,
  attributes: AttributeList,
  tree: AttributeTree,
  rename?: RenameRules,
): void {
  const { out } = context;
  if (!isList(tree)) {
    out.byte(0x7b);
    writeMembers(context, attributes, tree, rename);
    out.byte(0x7d);
    return;
  }
  out.byte(0x5b);
  let isFirst = true;
  for (const [name, node] of [...tree].sort(([a], [b]) => Number(a) - Number(b))) {
    if (!isFirst) out.byte(0x2c);
    isFirst = false;
    writeNode(context, attributes, name, typeof node === 'number' ? node : unwrap(node), rename);
  }
  out.byte(0x5d);
}

/** Writes the members of a tree without the braces. */
export function writeMembers(
  context: SpanContext,
  attributes: AttributeList,
  tree: AttributeTree,
  rename?: RenameRules,
) {
  const { out } = context;
  let isFirst = true;
  for (const [name, node] of tree) {
    if (!isFirst) out.byte(0x2c);
    isFirst = false;
    writeName(context, rename?.key.get(name) ?? name);
    out.byte(0x3a);
    writeNode(context, attributes, name, node, rename);
  }
}

function writeNode(
  context: SpanContext,
  attributes: AttributeList,
  name: string,
  node: AttributeTree | number,
  rename: RenameRules | undefined,
): void {
  if (typeof node !== 'number') {
    writeTree(context, attributes, node, rename);
    return;
  }
  const write = rename?.json.has(name) ? writeUnwrappedValue : writeValue;
  write(context, attributes.valueStarts[node]!, attributes.valueEnds[node]!);
}

export interface RenameRules {
  readonly key: ReadonlyMap<string, string>;
  /** Names of values whose text may be JSON. */
  readonly json: ReadonlySet<string>;
}

function isList(tree: AttributeTree): boolean {
  if (tree.size === 0) return false;
  for (const name of tree.keys()) if (!indexPattern.test(name)) return false;
  return true;
}

function unwrap(tree: AttributeTree): AttributeTree {
  if (tree.size !== 1) return tree;
  const [[name, node]] = [...tree] as [[string, AttributeTree | number]];
  return wrapperNames.has(name) && typeof node !== 'number' ? node : tree;
}

/** Writes a member name that is given in Latin-1, with one character per UTF-8 byte. */
function writeName({ out }: SpanContext, name: string): void {
  if (plainNamePattern.test(name)) {
    out.byte(0x22);
    out.ascii(name);
    out.byte(0x22);
  } else out.text(Buffer.from(name, 'latin1').toString('utf8'));
}

const plainNamePattern = /^[\w-]*$/;

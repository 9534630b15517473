import { writeUnwrapped } from './any-value.ts';
import { type AttributeTree, addLeaf, type Rename, writeMembers } from './attribute-tree.ts';
import type { SpanContext } from './span-context.ts';
import { findAttribute, type SpanEvent } from './span-events.ts';

/** Events that carry one message of the prompt, with the role of the message if no attribute states it. */
const messageRoles: ReadonlyMap<string, string> = new Map([
  ['gen_ai.system.message', 'system'],
  ['gen_ai.user.message', 'user'],
  ['gen_ai.assistant.message', 'assistant'],
  ['gen_ai.tool.message', 'tool'],
]);

/** Attributes of message events that are not part of the message. */
const ignoredAttributes: ReadonlySet<string> = new Set(['gen_ai.system', 'gen_ai.provider.name']);
const messageNames: Rename = { key: new Map(), json: new Set(['message', 'tool_calls']) };
const toolMessageNames: Rename = { ...messageNames, key: new Map([['id', 'tool_call_id']]) };

/**
 * Writes the messages of span events as `{"messages":[…]}`; returns false if there are none. All these messages are
 * input of the model, including earlier turns of the assistant; the output of the model is in `gen_ai.choice`. Source:
 * GenAI semantic conventions up to 1.36, events.
 */
export function writeMessageEvents(context: SpanContext, events: readonly SpanEvent[]): boolean {
  return writeAll(context, events, 'messages', (name) => messageRoles.has(name));
}

/** Writes `gen_ai.choice` events as `{"choices":[…]}`; returns false if there are none. */
export function writeChoiceEvents(context: SpanContext, events: readonly SpanEvent[]): boolean {
  return writeAll(context, events, 'choices', (name) => name === 'gen_ai.choice');
}

function writeAll(
  context: SpanContext,
  events: readonly SpanEvent[],
  key: string,
  accepts: (name: string) => boolean,
): boolean {
  const { out } = context;
  let hasMessage = false;
  for (const event of events) {
    if (!accepts(event.name)) continue;
    out.ascii(hasMessage ? ',' : `{"${key}":[`);
    hasMessage = true;
    event.taken = writeMessage(context, event);
  }
  if (hasMessage) out.ascii(']}');
  return hasMessage;
}

/** Returns false if the message does not contain every attribute, in which case the caller must keep the event. */
function writeMessage(context: SpanContext, { name, attributes }: SpanEvent): boolean {
  const whole = findAttribute(attributes, 'gen_ai.event.content');
  if (whole >= 0) {
    writeUnwrapped(context, attributes.valueStarts[whole]!, attributes.valueEnds[whole]!);
    return attributes.count === 1;
  }
  const tree: AttributeTree = new Map();
  let isComplete = true;
  for (let index = 0; index < attributes.count; index++) {
    const key = attributes.names[index]!.text;
    if (!ignoredAttributes.has(key)) isComplete = addLeaf(tree, key, index, context.maxDepth) && isComplete;
  }
  const role = messageRoles.get(name);
  const { out } = context;
  out.byte(0x7b);
  if (role !== undefined && !tree.has('role')) out.ascii(`"role":"${role}"${tree.size > 0 ? ',' : ''}`);
  writeMembers(context, attributes, tree, role === 'tool' ? toolMessageNames : messageNames);
  out.byte(0x7d);
  return isComplete;
}

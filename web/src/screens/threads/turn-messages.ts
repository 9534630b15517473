import { findMessages, type Message } from '../../components/values/messages.ts';

/** The messages that a turn adds to a conversation. */
export interface Turn {
  /** Messages of earlier turns, which clients send again with each turn. */
  readonly earlier: readonly Message[];
  /** Undefined: the inputs are no messages. */
  readonly input: readonly Message[] | undefined;
  readonly output: readonly Message[] | undefined;
}

/**
 * Finds the messages that a turn adds: from the inputs, those after the last answer; from the outputs, those that the
 * inputs do not contain. A value that has only one text counts as one message.
 */
export function readTurn(inputs: unknown, outputs: unknown): Turn {
  const sent = findMessages(inputs) ?? readText(inputs, 'input');
  const received = findMessages(outputs) ?? readText(outputs, 'output');
  const answered = sent?.findLastIndex(({ role }) => role === 'assistant') ?? -1;
  const start = sent !== undefined && answered + 1 < sent.length ? answered + 1 : 0;
  return { earlier: sent?.slice(0, start) ?? [], input: sent?.slice(start), output: removePrefix(received, sent) };
}

function readText(value: unknown, role: string): readonly Message[] | undefined {
  const values = typeof value === 'object' && value !== null ? Object.values(value) : [value];
  const [text] = values;
  return values.length === 1 && typeof text === 'string'
    ? [{ role, parts: [{ kind: 'text', text }], toolCalls: [] }]
    : undefined;
}

/** Removes the messages at the start that are the same as those of `prefix`, unless nothing would be left. */
function removePrefix(messages: readonly Message[] | undefined, prefix: readonly Message[] = []) {
  const isSame = (index: number) => JSON.stringify(messages?.[index]) === JSON.stringify(prefix[index]);
  const isRepeated = messages !== undefined && messages.length > prefix.length && prefix.every((_, at) => isSame(at));
  return isRepeated ? messages.slice(prefix.length) : messages;
}

/** A message, or a piece of one that is still coming, as graphs stream them. */
interface StreamedMessage {
  readonly id?: string;
  concat?(piece: unknown): unknown;
}

/**
 * The events of stream mode `messages`, which clients of the first API still read: what is known of a message when its first piece
 * comes, the message so far with each piece, and messages as they stand in the state.
 * Source: reference/agent-server.md §2.2.
 */
export class OldMessages {
  readonly #soFar = new Map<string, unknown>();
  readonly #complete = new Set<string>();

  /** Events for one piece of mode `messages` of the graph's stream. */
  *piece(data: unknown): Generator<readonly [event: string, data: unknown]> {
    const [message, metadata] = data as [StreamedMessage, unknown];
    const { id } = message;
    if (id === undefined) return;
    const before = this.#soFar.get(id) as StreamedMessage | undefined;
    if (before === undefined) yield ['messages/metadata', { [id]: { metadata } }];
    const whole = before?.concat === undefined || message.concat === undefined ? message : before.concat(message);
    this.#soFar.set(id, whole);
    yield ['messages/partial', [whole]];
  }

  /** The event for the messages of a state that were not in one before, if there are any. */
  *values(state: unknown): Generator<readonly [event: string, data: unknown]> {
    const messages = typeof state === 'object' && state !== null && 'messages' in state ? state.messages : undefined;
    const fresh = (Array.isArray(messages) ? messages : []).filter(({ id }: StreamedMessage) => {
      if (id === undefined || this.#complete.has(id)) return false;
      this.#complete.add(id);
      this.#soFar.delete(id);
      return true;
    });
    if (fresh.length > 0) yield ['messages/complete', fresh];
  }
}

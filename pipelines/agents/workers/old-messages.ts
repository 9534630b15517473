/** A complete message, or a chunk of one, as graphs stream them. */
interface StreamedMessage {
  readonly id?: string;
  concat?(chunk: unknown): unknown;
}

/**
 * Produces the events of the legacy stream mode `messages`: `messages/metadata` at the first chunk of a message,
 * `messages/partial` with the accumulated message at each chunk, and `messages/complete` for new messages in the state.
 * Source: reference/agent-server.md §2.2.
 */
export class OldMessages {
  readonly #soFar = new Map<string, unknown>();
  readonly #complete = new Set<string>();

  /** Returns the events for one chunk of LangGraph's mode `messages`. */
  *chunk(data: unknown): Generator<readonly [event: string, data: unknown]> {
    const [message, metadata] = data as [StreamedMessage, unknown];
    const { id } = message;
    if (id === undefined) return;
    const before = this.#soFar.get(id) as StreamedMessage | undefined;
    if (before === undefined) yield ['messages/metadata', { [id]: { metadata } }];
    const whole = before?.concat === undefined || message.concat === undefined ? message : before.concat(message);
    this.#soFar.set(id, whole);
    yield ['messages/partial', [whole]];
  }

  /** Returns the event for messages that earlier states did not contain, if there are any. */
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

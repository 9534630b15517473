/** One event of `text/event-stream`. Source: HTML standard, "Server-sent events". */
export interface ServerEvent {
  readonly event: string;
  readonly data: string;
  /** Id of this event or of the last one that had an id. */
  readonly lastId: string | undefined;
}

/**
 * Reads the events of a response as they arrive. `fetch` is used instead of `EventSource`, which cannot send headers or
 * a body. Rejects if the connection breaks; returns if the stream is complete.
 */
export async function* readEvents(response: Response): AsyncGenerator<ServerEvent, void> {
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  if (reader === undefined) return;
  let rest = '';
  let lastId: string | undefined;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      rest += value;
      const blocks = rest.split(/\r\n\r\n|\n\n|\r\r/);
      rest = blocks.pop() ?? '';
      for (const block of blocks) {
        const fields = readFields(block);
        lastId = fields.get('id') ?? lastId;
        const data = fields.get('data');
        if (data !== undefined) yield { event: fields.get('event') ?? 'message', data, lastId };
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

function readFields(block: string): ReadonlyMap<string, string> {
  const fields = new Map<string, string>();
  for (const line of block.split(/\r\n|\n|\r/)) {
    const colon = line.indexOf(':');
    if (colon === 0) continue;
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    const former = fields.get(name);
    fields.set(name, name === 'data' && former !== undefined ? `${former}\n${value}` : value);
  }
  return fields;
}

import { once } from 'node:events';
import http from 'node:http';
import net from 'node:net';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { createEventStream, type SseFrame } from '../../../../api/agent-server/streaming/sse.ts';
import { runlakeError } from '../../../../infra/errors/runlake-error.ts';

/** Bodies of server-sent events over a real socket. */

/** Stands in for a subscription of the hub: the test adds items to it, makes it fail and ends it. */
class FakeSource {
  readonly #items: SseFrame[] = [];
  #wake: () => void = () => {};
  #ended = false;
  #error: unknown;
  taken = 0;
  closed = 0;

  put(...items: SseFrame[]): void {
    this.#items.push(...items);
    this.#wake();
  }
  end(error?: unknown): void {
    this.#ended = true;
    this.#error = error;
    this.#wake();
  }
  close(): void {
    this.closed += 1;
    this.end();
  }
  async *[Symbol.asyncIterator]() {
    for (;;) {
      const item = this.#items.shift();
      if (item !== undefined) {
        this.taken += 1;
        yield item;
      } else if (this.#error !== undefined) throw this.#error;
      else if (this.#ended) return;
      else await new Promise<void>((wake) => (this.#wake = wake));
    }
  }
}

const text = (data: string, more: Partial<SseFrame> = {}): SseFrame => ({ data: Buffer.from(data), ...more });

const open: (() => void)[] = [];
afterEach(() => {
  for (const close of open.splice(0)) close();
});

async function serve({ heartbeatMs = 60_000, clientReconnects = false } = {}) {
  const source = new FakeSource();
  const stopping = new AbortController();
  const accessEnded = new AbortController();
  const onDisconnect = vi.fn();
  const writes: number[] = [];
  const server = http.createServer((_request, response) => {
    const write = response.write.bind(response);
    response.write = ((chunk: Buffer) => {
      writes.push(chunk.length);
      return write(chunk);
    }) as typeof response.write;
    const body = createEventStream({
      source,
      frame: (frame: SseFrame) => frame,
      heartbeatMs,
      stopping: stopping.signal,
      accessEnded: accessEnded.signal,
      clientReconnects,
      logger: { warn: () => undefined },
      onClientDisconnect: onDisconnect,
    });
    body.on('error', () => response.destroy());
    response.on('close', () => body.destroy());
    body.pipe(response);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  open.push(
    () => void server.close(),
    () => server.closeAllConnections(),
  );
  const { port } = server.address() as net.AddressInfo;
  return { source, stopping, onDisconnect, writes, port, url: `http://127.0.0.1:${port}` };
}

describe('an event stream', () => {
  it('writes frames with event, data lines and id; available items are written together', async () => {
    const { source, url, writes } = await serve();
    const response = await fetch(url);
    source.put(text('{"a":1}', { event: 'values|a:1', id: '1-1' }), text('two\nlines'), text('{}', { event: 'a\nb' }));
    source.end();
    expect(await response.text()).toBe(
      ': heartbeat\nevent: values|a:1\ndata: {"a":1}\nid: 1-1\n\ndata: two\ndata: lines\n\nevent: a b\ndata: {}\n\n',
    );
    expect(writes).toHaveLength(2);
    expect(source.closed).toBeGreaterThan(0);
  });

  it('opens at once and sends heartbeats while there are no items', async () => {
    const { source, url } = await serve({ heartbeatMs: 20 });
    const reader = (await fetch(url)).body!.pipeThrough(new TextDecoderStream()).getReader();
    let seen = '';
    while (seen.split(': heartbeat\n').length < 5) seen += (await reader.read()).value;
    source.put(text('{}', { event: 'late' }));
    while (!seen.includes('event: late')) seen += (await reader.read()).value;
    await reader.cancel();
  });

  it.each([
    ['an error of the catalogue', runlakeError('STREAM_READER_TOO_SLOW'), 'STREAM_READER_TOO_SLOW'],
    ['anything else', new Error('secret text'), 'INTERNAL'],
  ])('ends with an error event if its source fails with %s', async (_what, error, code) => {
    const { source, url, onDisconnect } = await serve();
    const response = await fetch(url);
    source.put(text('1'));
    source.end(error);
    const body = await response.text();
    expect(body).toMatch(new RegExp(`data: 1\\n\\nevent: error\\ndata: {"error":"${code}","message":".+"}\\n\\n$`));
    expect(body).not.toContain('secret');
    expect(onDisconnect).not.toHaveBeenCalled();
  });

  it('reports a client that disconnects, and closes its source', async () => {
    const { source, url, onDisconnect } = await serve();
    const client = new AbortController();
    await fetch(url, { signal: client.signal });
    expect(onDisconnect).not.toHaveBeenCalled();
    client.abort();
    await vi.waitFor(() => expect(onDisconnect).toHaveBeenCalledTimes(1));
    expect(source.closed).toBeGreaterThan(0);
  });

  it('reads no more from its source than the socket accepts', async () => {
    const { source, port, onDisconnect } = await serve();
    const socket = net.connect(port, '127.0.0.1');
    socket.pause();
    socket.write('GET / HTTP/1.1\r\nhost: a\r\n\r\n');
    const large = text(`"${'x'.repeat(64 * 1024)}"`);
    source.put(...Array.from({ length: 600 }, () => large));
    let before = -1;
    await vi.waitFor(
      () => {
        const isUnchanged = source.taken === before && source.taken > 0;
        before = source.taken;
        expect(isUnchanged).toBe(true);
      },
      { interval: 100 },
    );
    expect(source.taken).toBeLessThan(400);
    socket.resume();
    await vi.waitFor(() => expect(source.taken).toBe(600), 10_000);
    socket.destroy();
    await vi.waitFor(() => expect(onDisconnect).toHaveBeenCalledTimes(1));
  });

  it('ends with an error event when the server drains, or breaks off if the client reconnects by itself', async () => {
    const withError = await serve();
    const response = await fetch(withError.url);
    withError.source.put(text('1'));
    withError.stopping.abort();
    expect(await response.text()).toContain('event: error\ndata: {"error":"DRAINING"');
    const broken = await serve({ clientReconnects: true });
    const body = (await fetch(broken.url)).text();
    broken.stopping.abort();
    await expect(body).rejects.toThrow('terminated');
    for (const { onDisconnect, source } of [withError, broken]) {
      expect(onDisconnect).not.toHaveBeenCalled();
      expect(source.closed).toBeGreaterThan(0);
    }
  });
});

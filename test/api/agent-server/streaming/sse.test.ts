import { once } from 'node:events';
import http from 'node:http';
import net from 'node:net';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { eventStream, type SseFrame } from '../../../../api/agent-server/streaming/sse.ts';
import { runlakeError } from '../../../../infra/errors/runlake-error.ts';

/** Bodies of server-sent events over a real socket. */

/** What a reader of a hub is to a body: items that can be put in, failed and ended from outside. */
class Source {
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
  const source = new Source();
  const stopping = new AbortController();
  const accessEnded = new AbortController();
  const left = vi.fn();
  const writes: number[] = [];
  const server = http.createServer((_request, response) => {
    const write = response.write.bind(response);
    response.write = ((chunk: Buffer) => {
      writes.push(chunk.length);
      return write(chunk);
    }) as typeof response.write;
    const body = eventStream({
      source,
      frame: (frame: SseFrame) => frame,
      heartbeatMs,
      stopping: stopping.signal,
      accessEnded: accessEnded.signal,
      clientReconnects,
      logger: { warn: () => undefined },
      left,
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
  return { source, stopping, left, writes, port, url: `http://127.0.0.1:${port}` };
}

describe('a body of server-sent events', () => {
  it('frames items: event, data by lines, id; what is there together goes out as one', async () => {
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

  it('opens at once and goes on with heartbeats while nothing happens', async () => {
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
  ])('ends with an event that says so where its source fails with %s', async (_what, error, code) => {
    const { source, url, left } = await serve();
    const response = await fetch(url);
    source.put(text('1'));
    source.end(error);
    const body = await response.text();
    expect(body).toMatch(new RegExp(`data: 1\\n\\nevent: error\\ndata: {"error":"${code}","message":".+"}\\n\\n$`));
    expect(body).not.toContain('secret');
    expect(left).not.toHaveBeenCalled();
  });

  it('tells of a client that goes, and lets go of its source', async () => {
    const { source, url, left } = await serve();
    const leaving = new AbortController();
    await fetch(url, { signal: leaving.signal });
    expect(left).not.toHaveBeenCalled();
    leaving.abort();
    await vi.waitFor(() => expect(left).toHaveBeenCalledTimes(1));
    expect(source.closed).toBeGreaterThan(0);
  });

  it('takes no more from its source than the socket has room for', async () => {
    const { source, port, left } = await serve();
    const socket = net.connect(port, '127.0.0.1');
    socket.pause();
    socket.write('GET / HTTP/1.1\r\nhost: a\r\n\r\n');
    const large = text(`"${'x'.repeat(64 * 1024)}"`);
    source.put(...Array.from({ length: 600 }, () => large));
    let before = -1;
    await vi.waitFor(
      () => {
        const same = source.taken === before && source.taken > 0;
        before = source.taken;
        expect(same).toBe(true);
      },
      { interval: 100 },
    );
    expect(source.taken).toBeLessThan(400);
    socket.resume();
    await vi.waitFor(() => expect(source.taken).toBe(600), 10_000);
    socket.destroy();
    await vi.waitFor(() => expect(left).toHaveBeenCalledTimes(1));
  });

  it('at the end of the server says so, or breaks off where the client comes back by itself', async () => {
    const said = await serve();
    const response = await fetch(said.url);
    said.source.put(text('1'));
    said.stopping.abort();
    expect(await response.text()).toContain('event: error\ndata: {"error":"DRAINING"');
    const broken = await serve({ clientReconnects: true });
    const body = (await fetch(broken.url)).text();
    broken.stopping.abort();
    await expect(body).rejects.toThrow('terminated');
    for (const { left, source } of [said, broken]) {
      expect(left).not.toHaveBeenCalled();
      expect(source.closed).toBeGreaterThan(0);
    }
  });
});

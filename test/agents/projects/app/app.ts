import { setTimeout as pause } from 'node:timers/promises';
import { Hono } from 'hono';
import { streamSSE } from 'hono/streaming';

type Bindings = { auth?: { user: { identity: string }; scopes: string[] } };

/** An app with ordinary and with harmful routes. */
export const app = new Hono<{ Bindings: Bindings }>();

let aborted = 0;
const countAbort = () => {
  aborted += 1;
};

app.use(async (c, next) => {
  await next();
  c.header('x-middleware', 'was here');
});
app.get('/hello/:name', (c) =>
  c.json({ text: `${process.env.GREETING} ${c.req.param('name')}`, query: c.req.query(), url: c.req.url }),
);
app.get('/headers', (c) => c.json(c.req.header()));
app.get('/whoami', (c) => c.json(c.env.auth ?? null));
app.get('/cookies', (c) => {
  c.header('set-cookie', 'a=1', { append: true });
  c.header('set-cookie', 'b=2', { append: true });
  c.header('x-frame-options', 'SAMEORIGIN');
  return c.body(null, 204);
});
app.get('/pid', (c) => c.text(String(process.pid)));

/** Echoes the request body as a stream. */
app.post('/echo', (c) => new Response(c.req.raw.body, { headers: { 'content-type': 'application/octet-stream' } }));
app.put('/size', async (c) => c.json({ bytes: (await c.req.arrayBuffer()).byteLength }));
app.get('/large/:megabytes', (c) => {
  let left = Number(c.req.param('megabytes'));
  const body = new ReadableStream({
    pull(controller) {
      if (left === 0) controller.close();
      else controller.enqueue(new Uint8Array(1024 * 1024).fill(left % 256));
      left -= 1;
    },
  });
  return c.body(body);
});

/** Streams until the client disconnects. */
app.get('/ticks', (c) =>
  streamSSE(c, async (stream) => {
    stream.onAbort(countAbort);
    for (let tick = 0; !stream.aborted; tick += 1) {
      await stream.writeSSE({ event: 'tick', data: String(tick) });
      await pause(20);
    }
  }),
);
app.get('/never', async (c) => {
  c.req.raw.signal.addEventListener('abort', countAbort);
  return await new Promise<Response>(() => undefined);
});
app.get('/aborted', (c) => c.json(aborted));

app.post('/break/:how', async (c) => {
  switch (c.req.param('how')) {
    case 'throw':
      throw new Error('a secret of the app');
    case 'exit':
      return process.exit(3);
    case 'later':
      setImmediate(() => {
        throw new Error('outside of any request');
      });
      return await new Promise<Response>(() => undefined);
    case 'loop':
      for (;;) Math.random();
    case 'midway':
      return c.body(
        new ReadableStream({
          start(controller) {
            controller.enqueue(new TextEncoder().encode('begun'));
            setTimeout(() => process.exit(3), 50);
          },
        }),
      );
    default:
      return c.notFound();
  }
});

// Paths that the agent server also defines.
app.get('/info', (c) => c.json({ from: 'the app' }));
app.all('/ok', (c) => c.json({ from: 'the app' }));
app.get('/threads/*', (c) => c.json({ from: 'the app' }));
app.get('/files/*', (c) => c.text(c.req.path));
app.notFound((c) => c.text('the app has none either', 404));

/** An app without Hono: any object with `fetch`. */
export const bare = {
  fetch: (request: Request) => new Response(`bare ${new URL(request.url).pathname}`, { status: 203 }),
};

export const nothing = { listen: () => undefined };

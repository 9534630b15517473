import { createConnection } from 'node:net';

/** Response, or the reason why there is no response. */
export type PortAnswer = { readonly answer: Buffer } | { readonly reason: string };

const withinMs = 5_000;

/** Sends bytes to a loopback port; resolves with the response as soon as `isWhole` accepts it. Never rejects. */
export function askPort(
  port: number,
  question: Buffer | string,
  isWhole: (answer: Buffer) => boolean,
): Promise<PortAnswer> {
  return new Promise((resolve) => {
    let answer = Buffer.alloc(0);
    const socket = createConnection({ host: '127.0.0.1', port }, () => socket.write(question));
    const end = (result: PortAnswer) => {
      clearTimeout(timer);
      socket.destroy();
      resolve(result);
    };
    const timer = setTimeout(() => end({ reason: `no answer within ${withinMs} ms` }), withinMs);
    socket.on('data', (chunk: Buffer) => {
      answer = Buffer.concat([answer, chunk]);
      if (isWhole(answer)) end({ answer });
    });
    socket.on('error', (error) => end({ reason: error.message }));
    socket.on('close', () => end({ reason: 'the connection was closed' }));
  });
}

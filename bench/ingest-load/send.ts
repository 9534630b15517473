import { Agent, request } from 'node:http';

export interface SendOptions {
  readonly url: string;
  readonly apiKey: string;
  readonly contentType: string;
  readonly encoding?: string;
  readonly clients: number;
  readonly path: string;
}

/**
 * Sends every body once, over `clients` connections; milliseconds of each request. Fails on the first status above 299.
 */
export async function sendAll(bodies: readonly Buffer[], options: SendOptions): Promise<number[]> {
  const agent = new Agent({ keepAlive: true, maxSockets: options.clients });
  const times: number[] = [];
  let next = 0;
  const client = async () => {
    for (let index = next++; index < bodies.length; index = next++) {
      const began = performance.now();
      await send(bodies[index] as Buffer, options, agent);
      times.push(performance.now() - began);
    }
  };
  try {
    await Promise.all(Array.from({ length: options.clients }, client));
  } finally {
    agent.destroy();
  }
  return times;
}

function send(body: Buffer, options: SendOptions, agent: Agent): Promise<void> {
  return new Promise((resolve, reject) => {
    const call = request(`${options.url}${options.path}`, {
      method: 'POST',
      agent,
      headers: {
        'x-api-key': options.apiKey,
        'content-type': options.contentType,
        'content-length': body.length,
        ...(options.encoding && { 'content-encoding': options.encoding }),
      },
    });
    call.on('error', reject);
    call.on('response', (answer) => {
      const chunks: Buffer[] = [];
      answer.on('data', (chunk: Buffer) => chunks.push(chunk));
      answer.on('end', () => {
        if ((answer.statusCode ?? 500) < 300) resolve();
        else reject(new Error(`${answer.statusCode}: ${Buffer.concat(chunks).toString().slice(0, 500)}`));
      });
    });
    call.end(body);
  });
}

import { createServer } from 'node:http';
import { text } from 'node:stream/consumers';
import { onTestFinished } from 'vitest';
import { signWebhook } from '../../pipelines/agents/webhooks/deliver-webhooks.ts';
import { listenOnLoopback } from '../infra/listen-on-loopback.ts';

export const webhookSecret = 'what the tests sign webhooks with';

/** Receives webhooks; responds only while `answers` is true. Closed at the end of the test. */
export class WebhookReceiver {
  readonly received: { readonly body: string; readonly isSigned: boolean }[] = [];
  answers = false;
  url = '';

  static async open(): Promise<WebhookReceiver> {
    const receiver = new WebhookReceiver();
    const server = createServer(async (request, response) => {
      const body = await text(request);
      const signature = String(request.headers['x-runlake-signature']);
      const seconds = Number(/^t=(\d+),/.exec(signature)?.[1]);
      const isSigned = signature === signWebhook(webhookSecret, body, seconds * 1_000);
      receiver.received.push({ body, isSigned });
      if (receiver.answers) response.end();
    });
    const port = await listenOnLoopback(server);
    onTestFinished(() => {
      server.closeAllConnections();
      server.close();
    });
    receiver.url = `http://127.0.0.1:${port}/ended`;
    return receiver;
  }
}

import { PassThrough } from 'node:stream';
import { expect, it, onTestFinished } from 'vitest';
import { RequestBody } from '../../../api/control-plane/request-body.ts';
import { ReplicaDispatcher } from '../../../api/control-plane/send-to-replica.ts';
import { refusalHeader } from '../../../api/server/error-response.ts';
import { until } from '../../infra/until.ts';
import { startReplica } from './open-proxy.ts';

it('sends no body to a second replica that exceeds its limit while the replica is found', async () => {
  const refusing = await startReplica((request, response) => {
    request.once('data', () => response.writeHead(503, { [refusalHeader]: 'draining' }).end());
  });
  const second = await startReplica((request, response) => void request.resume().on('end', () => response.end()));
  const source = new PassThrough({ objectMode: true });
  const body = new RequestBody(source, { maxBytes: 1_000, maxTotalBytes: 10_000, usedBytes: 0 });
  source.write(Buffer.from('a'));
  const dispatcher = new ReplicaDispatcher();
  onTestFinished(async () => {
    await dispatcher.close();
    await Promise.all([refusing.close(), second.close()]);
  });
  const replicas = {
    async find(_slug: string, { avoid }: { readonly avoid?: ReadonlySet<string> } = {}) {
      if (avoid?.has(refusing.url) !== true) return { deploymentId: 'trips', url: refusing.url };
      source.end(Buffer.alloc(2_000));
      await until('the body exceeds its limit', () => !body.canRestart);
      return { deploymentId: 'trips', url: second.url };
    },
  };
  const { signal } = new AbortController();
  const request = { slug: 'trips', replicas, body, signal, rewriteHeaders: () => ({}) };
  const sent = new Promise((resolve) => {
    const answered = (error: Error | null) => resolve(error ?? 'answered');
    dispatcher.run(request, () => dispatcher.request({ path: '/', method: 'POST' }, answered));
  });
  expect(await sent).toMatchObject({ code: 'DEPLOYMENT_NOT_SERVING', cause: undefined });
  expect([refusing.requests.length, second.requests.length]).toEqual([1, 0]);
});

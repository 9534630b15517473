/** The Kubernetes driver with a cluster that does not answer, does not run the pod, or is not reached by this host. */
import { describe, expect, it } from 'vitest';
import { runlakeError } from '../../../../infra/errors/runlake-error.ts';
import {
  applied,
  apply,
  followed,
  killedPods,
  listDeployments,
  listPods,
  never,
  open,
  paths,
  pod,
  readyPod,
  removedObjects,
  spec,
  startService,
  waitingPod,
} from './kubernetes-exchanges.ts';

const failure = { status: 503, body: { kind: 'Status', status: 'Failure', message: 'shutting down', code: 503 } };
const inTime = () => AbortSignal.timeout(60_000);

describe('a replica', () => {
  it('whose cluster does not answer is given up when its start is cancelled, and is removed', async () => {
    const { api, driver, options, stopping } = await open([
      { ...apply(paths.secret), body: '', until: never },
      ...[...removedObjects, killedPods, listPods([])],
    ]);
    const starting = driver.start(spec, options);
    starting.catch(() => undefined);
    await expect.poll(() => api.requests.some((each) => each.startsWith('PATCH'))).toBe(true);
    stopping.abort(new Error('cancelled'));
    await expect(starting).rejects.toThrow('cancelled');
  });

  it('whose cluster does not answer in time is left as it is', async () => {
    const { driver, options } = await open([{ request: 'GET /api/v1', until: never, times: 'any' }], {
      engineTimeoutMs: 100,
    });
    await expect(driver.start(spec, options)).rejects.toThrow('Kubernetes did not respond within 100 ms');
  });

  it('is healthy while it responds, or while the cluster does not deny it', async () => {
    let isReachable = true;
    await startService(() => isReachable);
    const { api, driver, lines, options } = await open([...applied, listPods([readyPod], 2), followed]);
    const replica = await driver.start(spec, options);
    await expect.poll(() => lines).toContain('ready');
    expect(await replica.isHealthy(inTime())).toBe(true);
    isReachable = false;
    for (const [response, expected] of [
      [listPods([readyPod]), true],
      [{ ...listPods([]), ...failure }, true],
      [listPods([waitingPod({ reason: 'CrashLoopBackOff' })]), false],
      [listPods([]), false],
    ] as const) {
      api.replace(response);
      expect(await replica.isHealthy(inTime())).toBe(expected);
    }
    replica.detach?.();
  });

  it('that only this host cannot reach in time is left as it is', async () => {
    await startService(() => false);
    const { driver, options, stopping } = await open([...applied, listPods([readyPod])]);
    const late = runlakeError('DEPLOYMENT_START_FAILED', { reason: 'It did not answer' });
    const starting = driver.start(spec, {
      ...options,
      onLog: (line) => line.startsWith('The pod is ready') && stopping.abort(late),
    });
    await expect(starting).rejects.toBe(late);
  });

  it('whose pod the cluster does not create or schedule says why', async () => {
    await startService();
    const unscheduled = {
      metadata: { name: pod },
      status: { conditions: [{ type: 'PodScheduled', status: 'False', message: '0/3 nodes are available' }] },
    };
    const quota = { type: 'ReplicaFailure', status: 'True', message: 'exceeded quota: pods' };
    const { driver, lines, options } = await open([
      ...[...applied, listPods([], 2), listDeployments([[quota]]), listDeployments([[quota]])],
      ...[listPods([unscheduled]), listPods([readyPod], 2), followed],
    ]);
    const replica = await driver.start(spec, options);
    await expect.poll(() => lines).toContain('ready');
    expect(lines.slice(0, 2)).toEqual([
      'The pod does not start yet: exceeded quota: pods',
      'The pod does not start yet: 0/3 nodes are available',
    ]);
    replica.detach?.();
  });
});

it('ends the removal of replicas when the cluster does not answer', async () => {
  const request = 'GET /api/v1/namespaces/agents/secrets?labelSelector=runlake/installation=inst';
  const { driver } = await open([{ request, until: never, times: 'any' }], { engineTimeoutMs: 100 });
  await expect(driver.removeAbandoned?.(async () => [], inTime())).rejects.toThrow();
});

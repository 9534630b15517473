/** The Kubernetes driver against an API that is written after the reference of Kubernetes 1.32; see `recorded-api.ts`. */
import { describe, expect, it } from 'vitest';
import { runlakeError } from '../../../../infra/errors/runlake-error.ts';
import {
  applied,
  apply,
  follow,
  followed,
  killedPods,
  lineTime,
  listDeployments,
  listPods,
  open,
  paths,
  pod,
  readyPod,
  removedObjects,
  spec,
  startService,
  waitingPod,
} from './kubernetes-exchanges.ts';
import { type Exchange, name, revisionId } from './recorded-api.ts';

describe('a replica', () => {
  it('is a Secret, a Deployment with probes and limits, and a Service; it has started when it responds', async () => {
    const hosts = await startService();
    const { driver, lines, options } = await open([
      apply(paths.secret, {
        kind: 'Secret',
        stringData: { MODEL_KEY: 'secret', PORT: '8000', LANGSMITH_PROJECT: 'Trips' },
      }),
      apply(paths.deployment, {
        kind: 'Deployment',
        spec: {
          replicas: 1,
          selector: { matchLabels: { 'runlake/replica': name } },
          template: {
            metadata: {
              labels: { team: 'a', 'runlake/replica': name, 'runlake/slug': 'trips' },
              annotations: { note: 'b' },
            },
            spec: {
              containers: [
                {
                  name: 'agent-server',
                  image: 'registry.example/trips:1.2',
                  envFrom: [{ secretRef: { name } }],
                  env: [{ name: 'DB', valueFrom: { secretKeyRef: { name: 'trips-db', key: 'url' } } }],
                  resources: { requests: { cpu: '300m', memory: '256Mi' }, limits: { cpu: '2000m', memory: '512Mi' } },
                  readinessProbe: { httpGet: { path: '/ok', port: 8000 } },
                  volumeMounts: [{ name: 'cache', mountPath: '/cache' }],
                },
                { name: 'proxy', image: 'proxy:1', securityContext: { allowPrivilegeEscalation: false } },
              ],
              volumes: [{ name: 'cache', emptyDir: {} }],
              imagePullSecrets: [{ name: 'registry' }],
              automountServiceAccountToken: false,
              enableServiceLinks: false,
              terminationGracePeriodSeconds: 25,
            },
          },
        },
      }),
      apply(paths.service, {
        kind: 'Service',
        spec: { selector: { 'runlake/replica': name }, ports: [{ port: 8000 }] },
      }),
      ...[listPods([]), listDeployments([])],
      listPods([waitingPod({ reason: 'ContainerCreating' })]),
      ...[listPods([readyPod]), listPods([readyPod])],
      followed,
      ...removedObjects,
      listPods([readyPod]),
      listPods([]),
    ]);
    const replica = await driver.start(spec, options);
    expect(replica.url).toBe(`http://${name}.agents.svc:8000`);
    expect(new Set(hosts)).toEqual(new Set([`${name}.agents.svc:8000`]));
    expect(await replica.isHealthy(AbortSignal.timeout(5_000))).toBe(true);
    await expect.poll(() => lines).toContain('ready');
    await replica.stop(5_000);
  });

  it('that writes a line that never ends costs the host little', async () => {
    await startService();
    const { driver, lines, options } = await open([
      ...[...applied, listPods([readyPod], 2)],
      { ...follow('&tailLines=20', `${lineTime(1)} ${'x'.repeat(1_000_000)}`), until: Promise.resolve() },
    ]);
    const replica = await driver.start(spec, options);
    await expect.poll(() => lines.slice(1)).toEqual([`${'x'.repeat(3_969)}…`]);
    replica.detach?.();
  });

  it.each([false, true])('whose log ends (connection cut: %s) is read on, without repeats', async (isCut) => {
    await startService();
    const newPod = { ...readyPod, metadata: { name: `${pod}2`, creationTimestamp: '2026-11-27T10:00:04Z' } };
    const ends: (() => void)[] = [];
    const untilEnded = () => ({ until: new Promise<void>((resolve) => ends.push(resolve)), isCut });
    const { driver, lines, options } = await open([
      ...[...applied, listPods([readyPod], 3)],
      { ...follow('&tailLines=20', `${lineTime(1)} one\n${lineTime(2)} two\n`), ...untilEnded() },
      { ...follow(`&sinceTime=${lineTime(2)}`, `${lineTime(2)} two\n${lineTime(3)} three\n`), ...untilEnded() },
      listPods([readyPod, newPod]),
      follow('', `${lineTime(1)} four\n`, `${pod}2`),
    ]);
    const replica = await driver.start(spec, options);
    for (const last of ['two', 'three', 'four']) {
      await expect.poll(() => lines.at(-1), { timeout: 10_000 }).toBe(last);
      ends.shift()?.();
    }
    expect(lines.slice(1)).toEqual(['one', 'two', 'three', 'four']);
    replica.detach?.();
  });

  it('whose pod cannot start fails with the reason and its last lines, and is removed', async () => {
    const { driver, options } = await open([
      ...applied,
      listPods([waitingPod({ reason: 'CrashLoopBackOff', message: 'back-off 10s' }, 2)]),
      {
        request: `GET /api/v1/namespaces/agents/pods/${pod}/log?container=agent-server&previous=true&tailLines=20`,
        contentType: 'text/plain',
        body: 'Error: no graph\n',
      },
      ...[...removedObjects, killedPods, listPods([])],
    ]);
    await expect(driver.start(spec, options)).rejects.toMatchObject({
      code: 'DEPLOYMENT_START_FAILED',
      message: 'The pod cannot start: agent-server: CrashLoopBackOff back-off 10s\nError: no graph.',
    });
  });

  it('that the cluster refuses fails with its message', async () => {
    const { driver, options } = await open([
      {
        ...apply(paths.secret),
        status: 403,
        body: { kind: 'Status', status: 'Failure', message: 'secrets is forbidden: no access', code: 403 },
      },
      ...removedObjects.map((each) => ({ ...each, status: 404, body: { kind: 'Status', code: 404 } })),
      ...[killedPods, listPods([])],
    ]);
    await expect(driver.start(spec, options)).rejects.toMatchObject({
      code: 'DEPLOYMENT_START_FAILED',
      message: 'Kubernetes refused (403): secrets is forbidden: no access.',
    });
  });

  it.each([429, 500, 503])('whose cluster does not respond at the moment is left as it is: %i', async (status) => {
    const failure = { kind: 'Status', status: 'Failure', message: 'apiserver is shutting down', code: status };
    const { driver, lines, options } = await open([...applied, { ...listPods([]), status, body: failure }]);
    await expect(driver.start(spec, options)).rejects.not.toMatchObject({ code: 'DEPLOYMENT_START_FAILED' });
    expect(lines).toEqual([`Kubernetes failed (${status}): apiserver is shutting down`]);
  });

  it('is removed when its start is cancelled', async () => {
    const { api, driver, options, stopping } = await open([
      ...[...applied, listPods([waitingPod({ reason: 'ContainerCreating' })], 'any')],
      ...[...removedObjects, killedPods],
    ]);
    const starting = driver.start(spec, options);
    starting.catch(() => undefined);
    await expect.poll(() => api.requests.filter((each) => each.includes('/pods')).length).toBeGreaterThan(0);
    api.replace(listPods([], 'any'));
    stopping.abort(new Error('cancelled'));
    await expect(starting).rejects.toThrow('cancelled');
  });

  it('that another host has taken over is left alone, whether it answers or not', async () => {
    await startService();
    const answering = await open([...applied, listPods([readyPod], 2), followed]);
    const replica = await answering.driver.start(spec, answering.options);
    await expect.poll(() => answering.lines).toContain('ready');
    replica.detach?.();
    const { api, driver, options, stopping } = await open([
      ...[...applied, listPods([waitingPod({ reason: 'ContainerCreating' })], 'any')],
    ]);
    const starting = driver.start(spec, options);
    starting.catch(() => undefined);
    await expect.poll(() => api.requests.filter((each) => each.includes('/pods')).length).toBeGreaterThan(0);
    const takenOver = runlakeError('REVISION_TAKEN_OVER');
    stopping.abort(takenOver);
    await expect(starting).rejects.toBe(takenOver);
  });

  it.each([
    [{ volumes: [{ name: 'root', hostPath: { path: '/' } }] }, 'hostPath'],
    [{ sidecars: [{ name: 'a', ports: [{ containerPort: 80, hostPort: 80 }] }] }, 'hostPort'],
    [{ sidecars: [{ name: 'a', securityContext: { privileged: true } }] }, 'securityContext'],
    [{ volumes: [{ name: 'others', secret: { secretName: 'runlake-x' } }] }, 'belong to deployments'],
    [{ init_containers: [{ name: 'a', envFrom: [{ secretRef: { name: 'runlake-x' } }] }] }, 'belong to deployments'],
    [{ image_pull_secrets: [{ name: 'runlake-x' }] }, 'belong to deployments'],
  ])('with %j is refused', async (resources, text) => {
    const { driver, options } = await open([
      ...removedObjects.map((each) => ({ ...each, status: 404, body: { kind: 'Status', code: 404 } })),
      ...[killedPods, listPods([])],
    ]);
    await expect(driver.start({ ...spec, resources }, options)).rejects.toThrow(text);
  });
});

it('removes replicas of this installation that no host knows, as long as their Secret exists', async () => {
  const other = `runlake-${revisionId}-2`;
  const rename = (each: Exchange) => ({ ...each, request: each.request.replace(name, other) });
  const { driver } = await open([
    {
      request: 'GET /api/v1/namespaces/agents/secrets?labelSelector=runlake/installation=inst',
      body: {
        ...{ kind: 'SecretList', apiVersion: 'v1', metadata: {} },
        items: [{ metadata: { name } }, { metadata: { name: other } }],
      },
    },
    ...[...removedObjects, killedPods, listPods([])].map(rename),
  ]);
  await driver.removeAbandoned?.(async () => [spec], new AbortController().signal);
});

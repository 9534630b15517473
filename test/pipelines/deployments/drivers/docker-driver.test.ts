/** The Docker driver against an API that is written after the reference of the Docker Engine API 1.50; see `recorded-api.ts`. */
import { hostname } from 'node:os';
import Docker from 'dockerode';
import { describe, expect, it } from 'vitest';
import { runlakeError } from '../../../../infra/errors/runlake-error.ts';
import type { ReplicaSpec } from '../../../../pipelines/deployments/driver.ts';
import { findOwnNetwork } from '../../../../pipelines/deployments/drivers/docker-driver.ts';
import {
  closers,
  createContainer,
  frame,
  id,
  inspected,
  logs,
  missing,
  open,
  pulled,
  removed,
  spec,
  startAgentServer,
  started,
  waiting,
} from './docker-exchanges.ts';
import { image, name, openRecordedApi, revisionId } from './recorded-api.ts';

/** Requests that a start may send, or not, when it is cancelled. */
const observed = [waiting, inspected('1')].map((each) => ({ ...each, times: 'any' as const }));

describe('a replica', () => {
  it('is pulled, created with its limits and variables, and started; it serves on a loopback port', async () => {
    const port = await startAgentServer();
    const create = {
      ...createContainer,
      sends: {
        Image: image,
        Env: [
          'LANGSMITH_PROJECT=Trips',
          'LANGSMITH_ENDPOINT=https://runlake.example',
          'MODEL_KEY=secret',
          'PORT=8000',
          'RUNLAKE_AGENTS_HOST=0.0.0.0',
          'RUNLAKE_AGENTS_PORT=8000',
          `RUNLAKE_AGENTS_DEPLOYMENT=${spec.deploymentId}`,
        ],
        Labels: { team: 'a', 'runlake.installation': 'inst', 'runlake.slug': 'trips' },
        HostConfig: {
          NanoCpus: 1_000_000_000,
          Memory: 512 * 1024 * 1024,
          PidsLimit: 4096,
          SecurityOpt: ['no-new-privileges'],
          PortBindings: { '8000/tcp': [{ HostIp: '127.0.0.1', HostPort: '' }] },
        },
      },
    };
    const { driver, lines, options } = await open([
      ...[missing, pulled, create, started, waiting, inspected(port)],
      logs(Buffer.concat([frame(1, 'ready\n'), frame(2, 'a warn'), frame(2, 'ing\n')])),
      { request: `POST /containers/${id}/stop?t=3`, status: 304 },
      removed(id),
    ]);
    const replica = await driver.start(spec, options);
    expect(replica.url).toBe(`http://127.0.0.1:${port}`);
    expect(await replica.isHealthy(AbortSignal.timeout(5_000))).toBe(true);
    expect(lines).toEqual(['1.2: Pulling from trips', 'Digest: sha256:ab', 'ready', 'a warning']);
    await replica.stop(2_500);
  });

  it('that floods its output with blank lines, or with a line that never ends, costs the host little', async () => {
    const port = await startAgentServer();
    const flood = [...Array.from({ length: 20_000 }, () => frame(1, '\n')), frame(1, 'x'.repeat(1_000_000))];
    const { driver, lines, options } = await open([
      ...[missing, pulled, createContainer, started, waiting, inspected(port)],
      logs(Buffer.concat([...flood, frame(1, '\nready\n'), frame(2, 'no newline')]), Promise.resolve()),
    ]);
    await driver.start(spec, options);
    await expect.poll(() => lines.slice(2)).toEqual([`${'x'.repeat(4_000)}…`, 'ready', 'no newline']);
  });

  it('that ends before it responds fails with its last lines, and is removed', async () => {
    const { driver, options } = await open([
      ...[missing, pulled, createContainer, started],
      logs(frame(2, 'Error: no graph\n'), Promise.resolve()),
      { ...waiting, body: { StatusCode: 1 }, until: Promise.resolve() },
      { ...inspected('1', { Running: false, OOMKilled: false, ExitCode: 1 }), times: 'any' },
      removed(name),
    ]);
    await expect(driver.start(spec, options)).rejects.toMatchObject({
      code: 'DEPLOYMENT_START_FAILED',
      message: 'The container ended with exit code 1\nError: no graph.',
    });
  });

  it('that runs out of memory says so', async () => {
    let end: () => void = () => undefined;
    const ending = new Promise<void>((resolve) => {
      end = resolve;
    });
    const port = await startAgentServer();
    const { driver, options } = await open([
      ...[missing, pulled, createContainer, started, logs(frame(1, 'ready\n')), inspected(port)],
      { ...waiting, body: { StatusCode: 137 }, until: ending },
      inspected(port, { Running: false, OOMKilled: true, ExitCode: 137 }),
    ]);
    const replica = await driver.start(spec, options);
    end();
    expect(await replica.ended).toBe('The container ran out of memory.');
  });

  it('uses the image of the machine if its registry does not respond', async () => {
    const port = await startAgentServer();
    const { driver, lines, options } = await open([
      missing,
      { ...pulled, status: 500, body: { message: 'dial tcp: i/o timeout' } },
      { request: `GET /images/${image}/json`, body: { Id: 'sha256:ab' } },
      ...[createContainer, started, waiting, inspected(port), logs(Buffer.alloc(0))],
    ]);
    await driver.start(spec, options);
    expect(lines.join()).toContain('dial tcp: i/o timeout');
  });

  it.each([
    ['at once', { ...pulled, status: 404, body: { message: 'manifest for trips:1.2 not found' } }, 'not found'],
    [
      'while layers are downloaded',
      {
        ...pulled,
        body: '{"status":"Pulling from trips","id":"1.2"}\r\n{"errorDetail":{"message":"no space left"},"error":"no space left"}\r\n',
      },
      'no space left',
    ],
  ])('whose image cannot be pulled fails and says why: %s', async (_when, pull, reason) => {
    const { driver, options } = await open([
      missing,
      pull,
      { request: `GET /images/${image}/json`, status: 404, body: { message: 'No such image' } },
      { ...removed(name), status: 404, body: { message: 'No such container' } },
    ]);
    await expect(driver.start(spec, options)).rejects.toMatchObject({
      code: 'DEPLOYMENT_START_FAILED',
      message: expect.stringContaining(reason),
    });
  });

  it('that runs with the same settings is taken over', async () => {
    const port = await startAgentServer();
    const first = await open([
      ...[missing, pulled, createContainer, started, waiting, inspected(port), logs(Buffer.alloc(0))],
    ]);
    await first.driver.start(spec, first.options);
    const settings = first.api.bodies.find((body) => body.includes('runlake.settings')) ?? '{}';
    const { Labels } = JSON.parse(settings) as { Labels: Record<string, string> };
    const present = (running: boolean) => ({
      request: `GET /containers/${name}/json`,
      body: {
        ...(inspected(port).body as object),
        State: { Running: running },
        Config: { Labels },
      },
    });
    const second = await open([
      { ...present(true), times: 2 },
      {
        ...logs(Buffer.alloc(0)),
        request: `GET /containers/${name}/logs?follow=true&stdout=true&stderr=true&tail=0`,
      },
      { ...waiting, request: `POST /containers/${name}/wait` },
    ]);
    expect((await second.driver.start(spec, second.options)).url).toBe(`http://127.0.0.1:${port}`);
    const third = await open([
      ...[
        present(false),
        removed(name),
        pulled,
        createContainer,
        started,
        waiting,
        inspected(port),
        logs(Buffer.alloc(0)),
      ],
    ]);
    await third.driver.start(spec, third.options);
  });

  it.each([429, 500, 503])('that an engine cannot start at the moment is left as it is: %i', async (status) => {
    const { driver, lines, options } = await open([
      ...[missing, pulled, createContainer],
      { ...started, status, body: { message: 'server is shutting down' } },
    ]);
    await expect(driver.start(spec, options)).rejects.not.toMatchObject({ code: 'DEPLOYMENT_START_FAILED' });
    expect(lines.at(-1)).toBe('Docker failed: server is shutting down');
  });

  it('that an engine refuses fails with its message, and is removed', async () => {
    const { driver, options } = await open([
      ...[missing, pulled, { ...createContainer, status: 400, body: { message: 'invalid label' } }, removed(name)],
    ]);
    await expect(driver.start(spec, options)).rejects.toMatchObject({
      code: 'DEPLOYMENT_START_FAILED',
      message: 'Docker refused: invalid label.',
    });
  });

  it('is removed when its start is cancelled', async () => {
    const { driver, options, stopping } = await open([
      ...[missing, pulled, createContainer, started, ...observed, logs(frame(1, 'starting\n')), removed(name)],
    ]);
    const starting = driver.start(spec, {
      ...options,
      onLog: (line) => line === 'starting' && stopping.abort(new Error('cancelled')),
    });
    await expect(starting).rejects.toThrow('cancelled');
  });

  it('that another host has taken over is left alone, whether it answers or not', async () => {
    const port = await startAgentServer();
    const starts = [missing, pulled, createContainer, started, waiting];
    const answering = await open([...starts, inspected(port), logs(frame(1, 'ready\n'))]);
    const replica = await answering.driver.start(spec, answering.options);
    replica.detach?.();
    expect(await replica.ended).toContain('gone');
    const { driver, options, stopping } = await open([
      ...[missing, pulled, createContainer, started, ...observed, logs(frame(1, 'starting\n'))],
    ]);
    const takenOver = runlakeError('REVISION_TAKEN_OVER');
    const starting = driver.start(spec, {
      ...options,
      onLog: (line) => line === 'starting' && stopping.abort(takenOver),
    });
    await expect(starting).rejects.toBe(takenOver);
  });

  it.each([
    [{ imageUri: undefined }, 'external_docker'],
    [{ secretReferences: [{ name: 'K', secret_name: 's', secret_key: 'k' }] }, 'driver kubernetes'],
  ])('with %j is refused', async (change, text) => {
    const { driver, options } = await open([]);
    await expect(driver.start({ ...spec, ...change } as ReplicaSpec, options)).rejects.toThrow(text);
  });

  it('in a network is reached by its name', async () => {
    const { driver, options, stopping } = await open(
      [
        ...[missing, pulled, started, waiting, inspected('1'), logs(Buffer.alloc(0)), removed(name)],
        { ...createContainer, sends: { HostConfig: { NetworkMode: 'runlake' } } },
      ],
      { network: 'runlake' },
    );
    const starting = driver.start(spec, options);
    setTimeout(() => stopping.abort(new Error('not resolvable here')), 500);
    await expect(starting).rejects.toThrow('not resolvable here');
  });
});

it.each([
  [200, { bridge: {}, runlake_default: {} }, 'runlake_default'],
  [200, { bridge: {} }, undefined],
  [404, {}, undefined],
])('reaches replicas through the network of its own container: %s %j', async (status, networks, expected) => {
  const request = `GET /containers/${hostname()}/json`;
  const api = await openRecordedApi([{ request, status, body: { NetworkSettings: { Networks: networks } } }]);
  closers.push(() => api.close());
  const docker = new Docker({ host: '127.0.0.1', port: api.port, protocol: 'http' });
  expect(await findOwnNetwork(docker, 60_000)).toBe(expected);
});

it('removes containers of this installation that no host knows, also after one that cannot be removed', async () => {
  const { driver } = await open([
    {
      request: 'GET /containers/json?all=true&filters={"label":["runlake.installation=inst"]}',
      body: [
        { Id: 'a', Names: [`/${name}`] },
        { Id: 'stuck', Names: [`/runlake-${revisionId}-3`] },
        { Id: 'b', Names: [`/runlake-${revisionId}-2`] },
      ],
    },
    { ...removed('stuck'), status: 500, body: { message: 'driver failed to remove root filesystem' } },
    removed('b'),
  ]);
  await expect(driver.removeAbandoned?.(async () => [spec], new AbortController().signal)).rejects.toThrow(
    'failed to remove root filesystem',
  );
});

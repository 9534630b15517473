/** The Docker driver with an engine that does not answer, answers late, or is restarted. */
import { hostname } from 'node:os';
import Docker from 'dockerode';
import { describe, expect, it } from 'vitest';
import { findOwnNetwork } from '../../../../pipelines/deployments/drivers/docker-driver.ts';
import { deferred } from '../../../infra/deferred.ts';
import {
  closers,
  createContainer,
  frame,
  id,
  inspected,
  logs,
  missing,
  never,
  open,
  pulled,
  removed,
  spec,
  startAgentServer,
  started,
  waiting,
} from './docker-exchanges.ts';
import { name, openRecordedApi } from './recorded-api.ts';

describe('a replica', () => {
  it('whose engine cuts the connection while it runs is waited for again', async () => {
    const port = await startAgentServer();
    const [cut, end] = [deferred(), deferred()];
    const { api, driver, options } = await open([
      ...[missing, pulled, createContainer, started, logs(frame(1, 'ready\n')), inspected(port)],
      { ...waiting, body: ' ', until: cut.promise, isCut: true },
      { ...waiting, body: { StatusCode: 3 }, until: end.promise },
      inspected(port, { Running: false, OOMKilled: false, ExitCode: 3 }),
    ]);
    const replica = await driver.start(spec, options);
    const countWaits = () => api.requests.filter((each) => each === waiting.request).length;
    cut.resolve();
    await expect.poll(countWaits, { timeout: 10_000 }).toBe(2);
    end.resolve();
    expect(await replica.ended).toBe('The container ended with exit code 3.');
  });

  it('whose engine is restarted while it runs has the rest of its output in the log', async () => {
    const port = await startAgentServer();
    const cut = deferred();
    const more = {
      ...logs(Buffer.alloc(0)),
      request: `GET /containers/${id}/logs?follow=true&stdout=true&stderr=true&since=TIME`,
    };
    const { driver, lines, options } = await open([
      ...[missing, pulled, createContainer, started, waiting, inspected(port)],
      { ...logs(frame(1, 'ready\nhalf'), cut.promise), isCut: true },
      {
        ...more,
        status: 503,
        body: { message: 'starting' },
        contentType: 'application/json',
        until: Promise.resolve(),
      },
      { ...more, body: frame(2, 'after the restart\n'), until: Promise.resolve() },
      { ...more, body: frame(1, 'and later\n') },
    ]);
    const replica = await driver.start(spec, options);
    cut.resolve();
    await expect
      .poll(() => lines.slice(2), { timeout: 10_000 })
      .toEqual(['ready', 'half', 'after the restart', 'and later']);
    replica.detach?.();
  });

  it('whose engine does not answer is given up when its start is cancelled, and is removed', async () => {
    const { api, driver, options, stopping } = await open([{ ...missing, status: 200, until: never }, removed(name)]);
    const starting = driver.start(spec, options);
    starting.catch(() => undefined);
    await expect.poll(() => api.requests).toHaveLength(1);
    stopping.abort(new Error('cancelled'));
    await expect(starting).rejects.toThrow('cancelled');
  });

  it.each(['before', 'while'])('whose image is pulled for too long is given up: %s it is downloaded', async (when) => {
    const body = when === 'before' ? '' : '{"status":"Pulling from trips","id":"1.2"}\r\n';
    const { api, driver, lines, options, stopping } = await open([
      ...[missing, { ...pulled, body, until: never }, removed(name)],
    ]);
    const starting = driver.start(spec, options);
    starting.catch(() => undefined);
    await expect.poll(() => (when === 'before' ? api.requests : lines).at(-1)).toMatch(/trips/);
    stopping.abort(new Error('too late'));
    await expect(starting).rejects.toThrow('too late');
  });

  it('whose engine does not answer in time is left as it is', async () => {
    const { driver, options } = await open([{ ...missing, status: 200, until: never, times: 'any' }], {
      engineTimeoutMs: 100,
    });
    await expect(driver.start(spec, options)).rejects.toThrow('Docker did not respond within 100 ms');
  });
});

it.each([
  [{ status: 500, body: { message: 'starting' } }, 60_000, 'starting'],
  [{ until: never, times: 'any' as const }, 100, 'not respond'],
])('does not start replicas without knowing their network: %j', async (response, engineTimeoutMs, message) => {
  const api = await openRecordedApi([{ request: `GET /containers/${hostname()}/json`, ...response }]);
  closers.push(() => api.close());
  const docker = new Docker({ host: '127.0.0.1', port: api.port, protocol: 'http' });
  await expect(findOwnNetwork(docker, engineTimeoutMs)).rejects.toThrow(message);
});

it('ends the removal of containers when the engine does not answer, or when its host stops', async () => {
  const list = { request: 'GET /containers/json?all=true&filters={"label":["runlake.installation=inst"]}' };
  const left = [1, 2].map((number) => ({ Id: `left${number}`, Names: [`/runlake-left-${number}`] }));
  const signal = new AbortController().signal;
  const silent = await open([{ ...list, until: never, times: 'any' }], { engineTimeoutMs: 100 });
  await expect(silent.driver.removeAbandoned?.(async () => [], signal)).rejects.toThrow('not respond');
  const stopping = new AbortController();
  const { api, driver } = await open([{ ...list, body: left }]);
  await driver.removeAbandoned?.(async () => {
    stopping.abort();
    return [];
  }, stopping.signal);
  expect(api.requests).toHaveLength(1);
});

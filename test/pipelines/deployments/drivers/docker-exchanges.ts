/** Exchanges with the API of a Docker engine, written after the reference of the Docker Engine API 1.50; see `recorded-api.ts`. */
import Docker from 'dockerode';
import { afterEach } from 'vitest';
import type { ReplicaSpec } from '../../../../pipelines/deployments/driver.ts';
import { createDockerDriver } from '../../../../pipelines/deployments/drivers/docker-driver.ts';
import { startReplica } from '../../../api/control-plane/open-proxy.ts';
import {
  commonSpec,
  createStartOptions,
  type Exchange,
  name,
  openRecordedApi,
  type RecordedApi,
} from './recorded-api.ts';

export const id = 'c0ffee';

export const spec: ReplicaSpec = {
  ...commonSpec,
  environment: { MODEL_KEY: 'secret', PORT: '9' },
  secretReferences: [],
  resources: { cpu: 0.5, memory_limit_mb: 512, labels: { team: 'a', 'runlake.installation': 'other' } },
};

/** Frames of a multiplexed stream. Source: Docker Engine API, "Attach to a container". */
export function frame(stream: 1 | 2, line: string): Buffer {
  const header = Buffer.alloc(8);
  header[0] = stream;
  header.writeUInt32BE(Buffer.byteLength(line), 4);
  return Buffer.concat([header, Buffer.from(line)]);
}

export const missing: Exchange = {
  request: `GET /containers/${name}/json`,
  status: 404,
  body: { message: `No such container: ${name}` },
};
export const pulled: Exchange = {
  request: 'POST /images/create?fromImage=registry.example/trips&tag=1.2',
  body: '{"status":"Pulling from trips","id":"1.2"}\r\n{"status":"Downloading","progress":"[=> ]","id":"a1"}\r\n{"status":"Digest: sha256:ab"}\r\n',
};
export const createContainer: Exchange = {
  request: `POST /containers/create?name=${name}`,
  status: 201,
  body: { Id: id, Warnings: [] },
};
export const started: Exchange = { request: `POST /containers/${id}/start`, status: 204 };
export const never = new Promise(() => undefined);
export const logs = (text: Buffer, until: Promise<unknown> = never): Exchange => ({
  request: `GET /containers/${id}/logs?follow=true&stdout=true&stderr=true&tail=20`,
  contentType: 'application/vnd.docker.multiplexed-stream',
  body: text,
  until,
});
export const waiting: Exchange = { request: `POST /containers/${id}/wait`, until: never };
export const inspected = (port: string, state: object = { Running: true, OOMKilled: false }): Exchange => ({
  request: `GET /containers/${id}/json`,
  body: {
    Id: id,
    Name: `/${name}`,
    State: state,
    Config: { Labels: {} },
    NetworkSettings: { Ports: { '8000/tcp': [{ HostIp: '127.0.0.1', HostPort: port }] } },
  },
});
export const removed = (container: string): Exchange => ({
  request: `DELETE /containers/${container}?force=true&v=true`,
  status: 204,
});

export const closers: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

export async function startAgentServer(): Promise<string> {
  const replica = await startReplica((request, response) =>
    response.writeHead(request.url === '/ok' ? 200 : 404).end(),
  );
  closers.push(() => replica.close());
  return new URL(replica.url).port;
}

/** Opens a driver whose engine is the recorded API. */
export async function open(
  exchanges: readonly Exchange[],
  { network = undefined as string | undefined, engineTimeoutMs = 60_000 } = {},
) {
  const api: RecordedApi = await openRecordedApi(exchanges);
  closers.push(() => api.close());
  const docker = new Docker({ host: '127.0.0.1', port: api.port, protocol: 'http' });
  const common = { installation: 'inst', publicUrl: 'https://runlake.example', engineTimeoutMs };
  const driver = createDockerDriver({ ...common, docker, network });
  return { api, driver, ...createStartOptions() };
}

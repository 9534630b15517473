import type { RunlakeProcess } from '../runlake-process.ts';
import type { ProjectState, Projects } from './projects.ts';

export interface Sender {
  readonly workspace: number;
  readonly key: string;
  readonly shortKey: string;
  readonly userId: string;
  readonly email: string;
}

export interface Tenants {
  /** Ids and names, by index. */
  readonly workspaces: readonly { readonly id: string; readonly name: string }[];
  readonly senders: readonly Sender[];
}

/** Sends a request as the administrator and returns the JSON response. */
export async function ask<T>(
  { url, apiKey }: Pick<RunlakeProcess, 'url' | 'apiKey'>,
  path: string,
  options: { method?: string; body?: unknown; workspaceId?: string } = {},
): Promise<T> {
  const answer = await fetch(`${url}${path}`, {
    method: options.method ?? (options.body === undefined ? 'GET' : 'POST'),
    headers: {
      'x-api-key': apiKey,
      ...(options.body !== undefined && { 'content-type': 'application/json' }),
      ...(options.workspaceId !== undefined && { 'x-tenant-id': options.workspaceId }),
    },
    ...(options.body !== undefined && { body: JSON.stringify(options.body) }),
  });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${text}`);
  return (text === '' ? undefined : JSON.parse(text)) as T;
}

/** Creates two workspaces, three users and five keys. */
export async function makeTenants(runlake: RunlakeProcess): Promise<Tenants> {
  await ask(runlake, '/workspaces', { body: { display_name: 'Second, "quoted"' } });
  const found = await ask<{ id: string; display_name: string }[]>(runlake, '/workspaces');
  const workspaces = found.map(({ id, display_name: name }) => ({ id, name }));
  const emails = ['ann@example.com', 'bob@example.com', 'eve@example.com'];
  for (const email of emails) await ask(runlake, '/orgs/current/members', { body: { email } });
  const senders: Sender[] = [];
  for (const [workspace, user] of [
    [0, 0],
    [0, 1],
    [0, 1],
    [1, 1],
    [1, 2],
  ] as const) {
    const made = await ask<{ key: string; short_key: string; user_id: string; user_email: string }>(
      runlake,
      '/api-key',
      {
        body: { description: 'histories', user_email: emails[user] },
        workspaceId: workspaces[workspace]?.id ?? '',
      },
    );
    senders.push({ workspace, key: made.key, shortKey: made.short_key, userId: made.user_id, email: made.user_email });
  }
  return { workspaces, senders };
}

/** Reads the ids of existing projects from the server, and checks that these are the expected projects. */
export async function learnProjectIds(runlake: RunlakeProcess, tenants: Tenants, projects: Projects): Promise<void> {
  for (const [workspace, { id: workspaceId }] of tenants.workspaces.entries()) {
    const found = await ask<{ id: string; name: string }[]>(runlake, '/sessions?limit=100', { workspaceId });
    const living = projects.existing(workspace);
    const names = (list: readonly { name: string }[]) => JSON.stringify(list.map(({ name }) => name).sort());
    if (names(found) !== names(living)) throw new Error(`projects are ${names(found)}, not ${names(living)}`);
    for (const project of living) {
      const { id } = found.find(({ name }) => name === project.name) as { id: string };
      if (project.id !== undefined && project.id !== id) throw new Error(`${project.name} is ${id}, was ${project.id}`);
      project.id = id;
    }
  }
}

export async function makeProject(runlake: RunlakeProcess, tenants: Tenants, project: ProjectState): Promise<void> {
  const workspaceId = tenants.workspaces[project.workspace]?.id ?? '';
  project.id = (await ask<{ id: string }>(runlake, '/sessions', { body: { name: project.name }, workspaceId })).id;
}

export async function renameProject(
  runlake: RunlakeProcess,
  tenants: Tenants,
  project: ProjectState,
  name: string,
): Promise<void> {
  const workspaceId = tenants.workspaces[project.workspace]?.id ?? '';
  await ask(runlake, `/sessions/${project.id}`, { method: 'PATCH', body: { name }, workspaceId });
}

export async function deleteProject(runlake: RunlakeProcess, tenants: Tenants, project: ProjectState): Promise<void> {
  const workspaceId = tenants.workspaces[project.workspace]?.id ?? '';
  await ask(runlake, `/sessions/${project.id}`, { method: 'DELETE', workspaceId });
}

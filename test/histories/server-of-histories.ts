import { askRunlake } from '../ask-runlake.ts';
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

/** Creates two workspaces, three users and five keys. */
export async function makeTenants(runlake: RunlakeProcess): Promise<Tenants> {
  await askRunlake(runlake, '/workspaces', { body: { display_name: 'Second, "quoted"' } });
  const found = await askRunlake<{ id: string; display_name: string }[]>(runlake, '/workspaces');
  const workspaces = found.map(({ id, display_name: name }) => ({ id, name }));
  const emails = ['ann@example.com', 'bob@example.com', 'eve@example.com'];
  for (const email of emails) await askRunlake(runlake, '/orgs/current/members', { body: { email } });
  const senders: Sender[] = [];
  for (const [workspace, user] of [
    [0, 0],
    [0, 1],
    [0, 1],
    [1, 1],
    [1, 2],
  ] as const) {
    const made = await askRunlake<{ key: string; short_key: string; user_id: string; user_email: string }>(
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
    const found = await askRunlake<{ id: string; name: string }[]>(runlake, '/sessions?limit=100', { workspaceId });
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
  project.id = (
    await askRunlake<{ id: string }>(runlake, '/sessions', { body: { name: project.name }, workspaceId })
  ).id;
}

export async function renameProject(
  runlake: RunlakeProcess,
  tenants: Tenants,
  project: ProjectState,
  name: string,
): Promise<void> {
  const workspaceId = tenants.workspaces[project.workspace]?.id ?? '';
  await askRunlake(runlake, `/sessions/${project.id}`, { method: 'PATCH', body: { name }, workspaceId });
}

export async function deleteProject(runlake: RunlakeProcess, tenants: Tenants, project: ProjectState): Promise<void> {
  const workspaceId = tenants.workspaces[project.workspace]?.id ?? '';
  await askRunlake(runlake, `/sessions/${project.id}`, { method: 'DELETE', workspaceId });
}

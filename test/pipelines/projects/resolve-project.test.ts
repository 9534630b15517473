import { randomUUID } from 'node:crypto';
import { beforeAll, describe, expect, it } from 'vitest';
import { nilUuid } from '../../../pipelines/ingest/run-event/run-event.ts';
import { deleteProjects } from '../../../pipelines/projects/delete-projects.ts';
import { readProject } from '../../../pipelines/projects/project.ts';
import { createProjectResolver, type ProjectResolver } from '../../../pipelines/projects/resolve-project.ts';
import { createProject, updateProject } from '../../../pipelines/projects/write-project.ts';
import { addOrganization } from '../../api/start-api.ts';
import { freshStores } from '../../engines/stores.ts';
import { forSuite } from '../../for-suite.ts';

const stores = forSuite(() => freshStores());
let workspaceId: string;
let otherWorkspaceId: string;
let projects: ProjectResolver;

beforeAll(async () => {
  [workspaceId, otherWorkspaceId] = (await addOrganization(stores.database, 'acme')).workspaceIds;
  projects = createProjectResolver(stores.database, 1_000);
});

const post = (sessionName?: string, resolver = projects) =>
  resolver.resolve({ workspaceId, sessionName, isPatch: false });
const patch = (sessionName?: string) => projects.resolve({ workspaceId, sessionName, isPatch: true });
const rename = (id: string, name: string) =>
  updateProject({ database: stores.database, projects }, workspaceId, id, { name });
const remove = (id: string) =>
  deleteProjects({ database: stores.database, projects, enqueueProjectDeletion: async () => undefined }, workspaceId, [
    id,
  ]);

describe('resolveProject by name', () => {
  it('creates one project for concurrent requests of several processes', async () => {
    const resolvers = Array.from({ length: 4 }, () => createProjectResolver(stores.database, 1_000));
    const ids = await Promise.all(resolvers.flatMap((resolver) => [post('race', resolver), post('race', resolver)]));
    expect(new Set(ids).size).toBe(1);
    expect(await readProject(stores.database, workspaceId, ids[0] as string)).toMatchObject({ name: 'race' });
  });

  it('creates a separate project in each workspace', async () => {
    const there = await projects.resolve({ workspaceId: otherWorkspaceId, sessionName: 'same', isPatch: false });
    expect(there).not.toBe(await post('same'));
  });

  it('defaults to `default` for a post without a project, and to none for a patch', async () => {
    expect(await post()).toBe(await post('default'));
    expect(await post('')).toBe(await post('default'));
    expect(await patch()).toBe(nilUuid);
    expect(await patch('')).toBe(nilUuid);
  });

  it('maps a patch with a former name to the renamed project, and a post to a new one', async () => {
    const id = await post('before');
    await rename(id, 'after');
    expect(await patch('before')).toBe(id);
    expect(await patch('after')).toBe(id);
    const next = await post('before');
    expect(next).not.toBe(id);
    // The name is now current again; the alias row is removed without a separate step.
    expect(
      await createProjectResolver(stores.database, 1_000).resolve({
        workspaceId,
        sessionName: 'before',
        isPatch: true,
      }),
    ).toBe(next);
  });

  it('never resolves to a deleted project', async () => {
    const id = await post('short-lived');
    await rename(id, 'renamed');
    await remove(id);
    expect(await patch('short-lived')).not.toBe(id);
    expect(await post('renamed')).not.toBe(id);
  });

  it.each(['nul\0', 'half \ud800', 'x'.repeat(513)])('refuses an invalid name', async (name) => {
    await expect(post(name)).rejects.toMatchObject({ code: 'BAD_REQUEST' });
  });

  it.each(["'; DROP TABLE projects; --", '😀'.repeat(256), ' ', '%_\\', 'a b'])('accepts the name %j', async (name) => {
    const id = await post(name);
    expect(await readProject(stores.database, workspaceId, id)).toMatchObject({ name });
  });
});

describe('resolveProject by id', () => {
  it('accepts an existing project of the workspace, and prefers the id to the name', async () => {
    const { id } = await createProject(
      stores.database,
      workspaceId,
      { name: 'by-id' },
      { upsert: false, maxProjects: 1_000 },
    );
    const reference = { workspaceId, sessionId: id.toUpperCase(), sessionName: 'elsewhere', isPatch: false };
    expect(await projects.resolve(reference)).toBe(id);
    await expect(projects.resolve({ ...reference, workspaceId: otherWorkspaceId })).rejects.toMatchObject({
      code: 'PROJECT_UNKNOWN',
      message: expect.stringContaining(id),
    });
    await remove(id);
    await expect(projects.resolve(reference)).rejects.toMatchObject({ code: 'PROJECT_UNKNOWN' });
    await expect(projects.resolve({ ...reference, sessionId: randomUUID() })).rejects.toMatchObject({ status: 422 });
  });
});

import { describe, expect, it } from 'vitest';
import { forSuite } from '../../../for-suite.ts';
import { collect } from '../../collect.ts';
import { openClient } from '../../open-client.ts';
import { addOrganization, startApi } from '../../start-api.ts';

const api = forSuite(() => startApi());
const acme = forSuite(() => addOrganization(api.database, 'acme'));

const client = forSuite(() => openClient(api, acme.adminKey, { autoBatchTracing: false, disablePromptCache: true }));

describe('prompts with the stock SDK', () => {
  it('are created, found, changed, liked, archived and deleted', async () => {
    expect(await client.promptExists('greeting')).toBe(false);
    const made = await client.createPrompt('greeting', { description: 'says hello', readme: '# Hi', tags: ['a', 'b'] });
    expect(made).toMatchObject({
      repo_handle: 'greeting',
      full_name: '-/greeting',
      owner: null,
      tenant_id: acme.workspaceIds[0],
      description: 'says hello',
      readme: '# Hi',
      tags: ['a', 'b'],
      is_public: false,
      is_archived: false,
      num_commits: 0,
      num_likes: 0,
      last_commit_hash: null,
    });
    expect(await client.promptExists('greeting')).toBe(true);
    await expect(client.createPrompt('greeting')).rejects.toThrow(/already exists/);
    expect(await client.getPrompt('greeting')).toEqual(made);

    expect(await client.likePrompt('greeting')).toEqual({ likes: 1 });
    expect(await client.likePrompt('greeting')).toEqual({ likes: 1 });
    expect(await client.getPrompt('greeting')).toMatchObject({ num_likes: 1, liked_by_auth_user: true });
    expect(await client.unlikePrompt('greeting')).toEqual({ likes: 0 });

    await client.updatePrompt('greeting', { description: 'says hi', tags: [], isArchived: true });
    expect(await client.getPrompt('greeting')).toMatchObject({ description: 'says hi', readme: '# Hi', tags: [] });
    expect(await collect(client.listPrompts())).toEqual([]);
    expect((await collect(client.listPrompts({ isArchived: true }))).map((prompt) => prompt.repo_handle)).toEqual([
      'greeting',
    ]);
    await client.deletePrompt('greeting');
    expect(await client.promptExists('greeting')).toBe(false);
  });

  it('are pushed and pulled by latest, tag and hash', async () => {
    const first = {
      lc: 1,
      type: 'constructor',
      id: ['langchain', 'prompts', 'x'],
      kwargs: { template: 'Hello {name}' },
    };
    const url = await client.pushPrompt('pushed', { object: first, description: 'one', commitTags: ['stable', 'v1'] });
    const [commit] = await collect(client.listCommits('pushed'));
    expect(commit).toMatchObject({ parent_commit_hash: null, parent_id: null, num_downloads: 0, example_run_ids: [] });
    expect(commit?.commit_hash).toMatch(/^[0-9a-f]{64}$/);
    expect(url).toContain(`/prompts/pushed/${commit?.commit_hash.slice(0, 8)}`);

    const second = { ...first, kwargs: { template: 'Hi {name}' } };
    await client.pushPrompt('pushed', { object: second, commitDescription: 'shorter', commitTags: 'stable' });
    const commits = await collect(client.listCommits('pushed'));
    expect(commits).toMatchObject([{ parent_commit_hash: commit?.commit_hash }, { parent_commit_hash: null }]);
    expect(commits[0]).toMatchObject({ description: 'shorter' });

    const pull = async (name: string) => (await client.pullPromptCommit(name)).manifest;
    expect(await pull('pushed')).toEqual(second);
    expect(await pull('pushed:latest')).toEqual(second);
    expect(await pull('pushed:v1')).toEqual(first);
    // The tag moved with the second push.
    expect(await pull('pushed:stable')).toEqual(second);
    expect(await pull(`pushed:${commit?.commit_hash}`)).toEqual(first);
    expect(await pull(`pushed:${commit?.commit_hash.slice(0, 8)}`)).toEqual(first);
    await expect(pull(`pushed:${commit?.commit_hash.slice(0, 7)}`)).rejects.toThrow(/not found/);
    expect(JSON.parse(await client._pullPrompt('pushed'))).toEqual(second);
    expect(await client.pullPromptCommit('pushed')).toMatchObject({ owner: '-', repo: 'pushed', examples: [] });
    await api.services.promptReads.flush();
    expect(await client.getPrompt('pushed')).toMatchObject({
      num_commits: 2,
      num_downloads: 8,
      last_commit_hash: commits[0]?.commit_hash,
      commit_tags: ['stable', 'v1'],
    });
  });

  it('are made once if the client loses a response and repeats the request', async () => {
    await client.createPrompt('repeated');
    let lostResponses = 0;
    const fetchImplementation: typeof fetch = async (input, init) => {
      const response = await fetch(input, init);
      if (init?.method !== 'POST' || lostResponses === 0) return response;
      lostResponses -= 1;
      throw new TypeError('fetch failed');
    };
    const unlucky = await openClient(api, acme.adminKey, { fetchImplementation });
    for (const n of [1, 2]) {
      lostResponses = 1;
      await unlucky.createCommit('repeated', { n }, { description: `number ${n}` });
      expect(lostResponses).toBe(0);
    }
    const [, first] = await collect(client.listCommits('repeated'));
    expect(await client.getPrompt('repeated')).toMatchObject({ num_commits: 2 });
    const parentCommitHash = first!.commit_hash;
    for (const [n, description] of [
      [2, 'other'],
      [3, 'number 2'],
    ] as const) {
      await expect(client.createCommit('repeated', { n }, { parentCommitHash, description })).rejects.toThrow(
        /not the latest commit/,
      );
    }
  });

  it('refuse a commit without change and a commit on an old parent', async () => {
    await client.pushPrompt('raced', { object: { n: 1 } });
    await expect(client.createCommit('raced', { n: 1 })).rejects.toThrow(/Nothing to commit/);
    const [first] = await collect(client.listCommits('raced'));
    await client.createCommit('raced', { n: 2 });
    await expect(client.createCommit('raced', { n: 3 }, { parentCommitHash: first!.commit_hash })).rejects.toThrow(
      /not the latest commit/,
    );
    await client.createCommit('raced', { n: 1 });
    const commits = await collect(client.listCommits('raced'));
    expect(new Set(commits.map(({ commit_hash }) => commit_hash)).size).toBe(3);
  });

  it('have the same hashes for the same history', async () => {
    for (const name of ['twin-a', 'twin-b']) {
      await client.pushPrompt(name, { object: { n: 1 } });
      await client.pushPrompt(name, { object: { n: 2 } });
    }
    const [a, b] = await Promise.all(
      ['twin-a', 'twin-b'].map(async (name) =>
        (await collect(client.listCommits(name))).map(({ commit_hash }) => commit_hash),
      ),
    );
    expect(a).toEqual(b);
  });

  it('are listed by text and sorted, without agents and skills', async () => {
    await client.createPrompt('translate-text', { description: 'Into FRENCH' });
    await client.createPrompt('summarise', { description: 'shorter' });
    await client.pushSkill('a-skill', { files: {} });
    const names = async (options: object) =>
      (await collect(client.listPrompts(options))).map((prompt) => prompt.repo_handle);
    expect(await names({ query: 'french' })).toEqual(['translate-text']);
    expect(await names({ query: 'summ' })).toEqual(['summarise']);
    expect((await names({})).slice(0, 2)).toEqual(['summarise', 'translate-text']);
    expect(await names({})).not.toContain('a-skill');
    expect(await names({ isPublic: true })).toEqual([]);
    await client.likePrompt('translate-text');
    expect((await names({ sortField: 'num_likes' }))[0]).toBe('translate-text');
  });

  it('of 1 MB are stored and read', async () => {
    const text = '"é\\\u0000'.repeat(100_000);
    await client.pushPrompt('large', { object: { text } });
    expect((await client.pullPromptCommit('large')).manifest).toEqual({ text });
  });
});

describe('agents and skills with the stock SDK', () => {
  const file = (content: string) => ({ type: 'file' as const, content });

  it('are pushed, pulled, changed and deleted', async () => {
    expect(await client.agentExists('helper')).toBe(false);
    const url = await client.pushAgent('helper', {
      files: { 'AGENTS.md': file('be kind'), 'tools.json': file('{}') },
      description: 'helps',
    });
    const first = await client.pullAgent('helper');
    expect(first.files).toEqual({ 'AGENTS.md': file('be kind'), 'tools.json': file('{}') });
    expect(url).toContain(`/context/helper/${first.commit_hash.slice(0, 8)}`);

    // Files that the push does not name are kept; null deletes a file.
    await client.pushAgent('helper', {
      files: { 'AGENTS.md': file('be brief'), 'tools.json': null },
      parentCommit: first.commit_hash,
    });
    const second = await client.pullAgent('helper');
    expect(second.files).toEqual({ 'AGENTS.md': file('be brief') });
    expect((await client.pullAgent('helper', { version: first.commit_hash })).files).toEqual(first.files);
    expect((await client.pullAgent(`helper:${first.commit_hash.slice(0, 8)}`)).files).toEqual(first.files);
    const late = client.pushAgent('helper', { files: { x: file('') }, parentCommit: first.commit_hash });
    await expect(late).rejects.toThrow(/not the latest commit/);

    // A repeated push changes nothing.
    const repeated = { 'AGENTS.md': file('be brief'), 'tools.json': null };
    await client.pushAgent('helper', { files: repeated });
    await client.pushAgent('helper', { files: repeated, parentCommit: first.commit_hash });
    expect(await client.pullAgent('helper')).toEqual(second);

    await expect(client.pullSkill('helper')).rejects.toThrow(/not found/);
    expect((await collect(client.listAgents())).map(({ repo_handle }) => repo_handle)).toEqual(['helper']);
    await client.deleteAgent('helper');
    expect(await client.agentExists('helper')).toBe(false);
  });

  it('are listed by type', async () => {
    const files = { 'SKILL.md': { type: 'file', content: 'text' } } as const;
    await client.pushSkill('listed-skill', { files, description: 'about' });
    await client.pushAgent('listed-agent', { files });
    const names = async (repos: AsyncIterable<{ repo_handle: string }>) =>
      (await collect(repos)).map(({ repo_handle }) => repo_handle).filter((name) => name.startsWith('listed-'));
    expect(await names(client.listSkills({ query: 'listed' }))).toEqual(['listed-skill']);
    expect(await names(client.listAgents())).toEqual(['listed-agent']);
    expect(await client.skillExists('listed-skill')).toBe(true);
    await client.deleteSkill('listed-skill');
    expect(await client.skillExists('listed-skill')).toBe(false);
    expect(await names(client.listSkills())).toEqual([]);
    await expect(client.deleteSkill('listed-skill')).rejects.toThrow(/not found/i);
  });

  it('link to each other', async () => {
    await client.pushSkill('writing', { files: { 'SKILL.md': file('write') } });
    const { commit_id, commit_hash } = await client.pullSkill('writing');
    const link = { type: 'skill' as const, repo_handle: 'writing' };
    await client.pushAgent('author', {
      files: { 'skills/latest': link, 'skills/pinned': { ...link, commit_hash: commit_hash.slice(0, 10) } },
    });
    expect((await client.pullAgent('author')).files).toEqual({
      'skills/latest': link,
      'skills/pinned': { ...link, commit_id, commit_hash },
    });
    const push = (entry: object) => client.pushAgent('author', { files: { x: entry as never } });
    await expect(push({ ...link, repo_handle: 'absent' })).rejects.toThrow(/does not exist/);
    await expect(push({ ...link, type: 'agent' })).rejects.toThrow(/of type skill/);
  });
});

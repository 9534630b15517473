import type { ProjectReference } from './model.ts';

export interface ProjectState {
  readonly workspace: number;
  name: string;
  deleted: boolean;
  /** Set once the server has returned it. */
  id?: string;
}

/** The expected projects: which project a name or id resolves to after creations, renames and deletions. */
export class Projects {
  readonly list: ProjectState[] = [];
  /** The last project that had a name, by workspace and name. */
  readonly #former = new Map<string, number>();

  /** Returns the existing projects of a workspace. */
  existing(workspace: number): ProjectState[] {
    return this.list.filter((project) => project.workspace === workspace && !project.deleted);
  }

  /** Returns the former names of existing projects of a workspace that no project has now. */
  formerNames(workspace: number): string[] {
    return [...this.#former].flatMap(([key, index]) => {
      const [, space, name = ''] = /^(\d+) (.*)$/s.exec(key) ?? [];
      const free = this.#existingNamed(workspace, name) === -1;
      return Number(space) === workspace && free && !this.list[index]?.deleted ? [name] : [];
    });
  }

  /** Returns the index in `list`; `undefined` for a patch that names no project. An unused name creates a project. */
  resolve(workspace: number, reference: ProjectReference | undefined, kind: 'post' | 'patch'): number | undefined {
    if (reference !== undefined && 'id' in reference) return this.list.findIndex(({ id }) => id === reference.id);
    if (reference === undefined && kind === 'patch') return undefined;
    const name = reference?.name ?? 'default';
    const existing = this.#existingNamed(workspace, name);
    if (existing !== -1) return existing;
    const former = this.#former.get(`${workspace} ${name}`);
    if (kind === 'patch' && former !== undefined && !this.list[former]?.deleted) return former;
    return this.list.push({ workspace, name, deleted: false }) - 1;
  }

  rename(project: ProjectState, name: string): void {
    this.#former.set(`${project.workspace} ${project.name}`, this.list.indexOf(project));
    project.name = name;
  }

  #existingNamed(workspace: number, name: string): number {
    return this.list.findIndex(
      (project) => project.workspace === workspace && project.name === name && !project.deleted,
    );
  }
}

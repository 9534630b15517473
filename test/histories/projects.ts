import type { ProjectReference } from './model.ts';

export interface ProjectState {
  readonly workspace: number;
  name: string;
  deleted: boolean;
  /** Known once the server was asked. */
  id?: string;
}

/** Projects as they should be: which one a name or id leads to, after creations, renames and deletions. */
export class Projects {
  readonly list: ProjectState[] = [];
  /** The project that had a name last, by workspace and name. */
  readonly #former = new Map<string, number>();

  /** The living ones of a workspace. */
  living(workspace: number): ProjectState[] {
    return this.list.filter((project) => project.workspace === workspace && !project.deleted);
  }

  /** Names that living projects of a workspace gave up and no other took. */
  formerNames(workspace: number): string[] {
    return [...this.#former].flatMap(([key, index]) => {
      const [, space, name = ''] = /^(\d+) (.*)$/s.exec(key) ?? [];
      const free = this.#livingNamed(workspace, name) === -1;
      return Number(space) === workspace && free && !this.list[index]?.deleted ? [name] : [];
    });
  }

  /** The place in `list`; `undefined` for a patch that names none. A name that nobody has makes a project. */
  resolve(workspace: number, reference: ProjectReference | undefined, kind: 'post' | 'patch'): number | undefined {
    if (reference !== undefined && 'id' in reference) return this.list.findIndex(({ id }) => id === reference.id);
    if (reference === undefined && kind === 'patch') return undefined;
    const name = reference?.name ?? 'default';
    const living = this.#livingNamed(workspace, name);
    if (living !== -1) return living;
    const former = this.#former.get(`${workspace} ${name}`);
    if (kind === 'patch' && former !== undefined && !this.list[former]?.deleted) return former;
    return this.list.push({ workspace, name, deleted: false }) - 1;
  }

  rename(project: ProjectState, name: string): void {
    this.#former.set(`${project.workspace} ${project.name}`, this.list.indexOf(project));
    project.name = name;
  }

  #livingNamed(workspace: number, name: string): number {
    return this.list.findIndex(
      (project) => project.workspace === workspace && project.name === name && !project.deleted,
    );
  }
}

import { readKey, readText, readTexts } from '../../read-search.ts';

/** Kinds of repos that the list can be limited to. */
export const repoKinds = {
  prompt: 'Prompts',
  agent: 'Agents',
  skill: 'Skills',
} as const;
export type RepoKind = keyof typeof repoKinds;

export interface PromptsSearch {
  /** Part of name, description or readme. */
  readonly text?: string | undefined;
  /** Default: all kinds. */
  readonly kind?: RepoKind | undefined;
  /** Whether to list the public prompts of all workspaces instead of those of the workspace. */
  readonly public?: true | undefined;
}

export function readPromptsSearch({ text, kind, public: isPublic }: Record<string, unknown>): PromptsSearch {
  return {
    text: readText(text),
    kind: readKey(repoKinds, kind),
    public: isPublic === true ? true : undefined,
  };
}

export interface PromptSearch {
  /** Default: Content. */
  readonly tab?: string | undefined;
  /** Commit that the shown one is compared to: a hash or a tag. Default: its parent. */
  readonly base?: string | undefined;
}

export const readPromptSearch: (search: Record<string, unknown>) => PromptSearch = readTexts('tab', 'base');

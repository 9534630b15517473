import { Link } from '@tanstack/react-router';
import { lazy, Suspense } from 'react';
import { CopyButton } from '../../components/copy-button.tsx';
import { LoadingState } from '../../components/states.tsx';
import { Tabs } from '../../components/tabs.tsx';
import { showInvisible, Value } from '../../components/text.tsx';
import { formatExact } from '../../components/values/exact-json.ts';
import { JsonTree, LongText } from '../../components/values/json-tree.tsx';
import { Conversation } from '../../components/values/value-view.tsx';
import { CommitTags } from './commit-tags.tsx';
import { readDirectory, readPrompt } from './manifest.ts';
import type { PromptSearch } from './search.ts';
import { type Commit, type CommitContent, type RepoName, type Tag, toRepo } from './use-commits.ts';

const CommitDiff = lazy(() => import('./commit-diff.tsx').then(({ CommitDiff }) => ({ default: CommitDiff })));
const tabs = ['Content', 'JSON', 'Changes'] as const;
const maxText = 50_000;

/** A commit: its content, its JSON, and the difference to another commit. */
export function CommitView({
  name,
  canUpdate,
  isDirectory,
  content,
  commit,
  commits,
  tags,
  search,
  onSearch,
}: {
  readonly name: RepoName;
  readonly canUpdate: boolean;
  /** Whether the content is the directory of an agent or skill. */
  readonly isDirectory: boolean;
  readonly content: CommitContent;
  /** Unset until the page of commits that contains it is loaded. */
  readonly commit: Commit | undefined;
  readonly commits: readonly Commit[];
  readonly tags: readonly Tag[];
  readonly search: PromptSearch;
  readonly onSearch: (changes: PromptSearch) => void;
}) {
  const { commit_hash: hash, manifest, description } = content;
  const selected = tabs.find((each) => each === search.tab) ?? 'Content';
  return (
    <section aria-label="Commit">
      <header className="commit-head row wrap">
        <h2 className="mono">{hash.slice(0, 8)}</h2>
        <CommitTags
          name={name}
          canUpdate={canUpdate}
          commit={commit}
          tags={tags.filter(({ commit_hash }) => commit_hash === hash)}
        />
        <span className="spacer" />
        <CopyButton label="Copy the hash" text={() => hash} />
        <CopyButton label="Copy the JSON" text={() => formatExact(manifest)} />
      </header>
      {description && <p className="commit-description">{showInvisible(description)}</p>}
      <Tabs label="Parts of the commit" tabs={tabs} selected={selected} onSelect={(tab) => onSearch({ tab })}>
        <div className="commit-body stack">
          {selected === 'Content' &&
            (isDirectory ? <Directory name={name} manifest={manifest} /> : <PromptValues manifest={manifest} />)}
          {selected === 'JSON' && <JsonTree value={manifest} />}
          {selected === 'Changes' && (
            <Suspense fallback={<LoadingState />}>
              <CommitDiff
                name={name}
                isDirectory={isDirectory}
                content={content}
                parentHash={commit?.parent_commit_hash}
                base={search.base}
                commits={commits}
                tags={tags}
                onBase={(base) => onSearch({ base })}
              />
            </Suspense>
          )}
        </div>
      </Tabs>
    </section>
  );
}

function PromptValues({ manifest }: { readonly manifest: unknown }) {
  const { messages, variables, model, schema } = readPrompt(manifest);
  if (messages === undefined)
    return (
      <>
        <p className="muted">The manifest has no messages that are known here. This is its JSON.</p>
        <JsonTree value={manifest} />
      </>
    );
  return (
    <>
      {variables.length > 0 && (
        <div className="row wrap">
          <span className="muted">Variables</span>
          {variables.map((name) => (
            <code key={name} className="chip">
              <Value text={name} />
            </code>
          ))}
        </div>
      )}
      <section aria-label="Messages">
        <Conversation messages={messages} />
      </section>
      {model && (
        <section aria-label="Model">
          <h2>
            Model <Value text={model.name} />
          </h2>
          <JsonTree value={model.settings} />
        </section>
      )}
      {schema && (
        <section aria-label="Output schema">
          <h2>Output schema</h2>
          <JsonTree value={schema} />
        </section>
      )}
    </>
  );
}

function Directory({ name, manifest }: { readonly name: RepoName; readonly manifest: unknown }) {
  const entries = readDirectory(manifest);
  if (entries.length === 0) return <p className="muted">The directory is empty.</p>;
  return entries.map(({ path, text, linkTo }) => (
    <section key={path} className="file">
      <h3 className="mono">
        <Value text={path} />
      </h3>
      {linkTo === undefined ? (
        <pre className="text-view">
          <LongText text={text} maxLength={maxText} />
        </pre>
      ) : (
        <p>
          Link to{' '}
          <Link {...toRepo({ ...name, repo: linkTo })}>
            <Value text={linkTo} />
          </Link>
        </p>
      )}
    </section>
  ));
}

import { EmptyState, QueryState } from '../../components/states.tsx';
import { showInvisible, Value } from '../../components/text.tsx';
import { TextDiff } from '../../components/text-diff.tsx';
import { formatExact } from '../../components/values/exact-json.ts';
import { toSections } from './manifest.ts';
import { type Commit, type CommitContent, type RepoName, type Tag, useCommit } from './use-commits.ts';

/** The difference between a commit and its parent or the selected commit. */
export function CommitDiff({
  name,
  isDirectory,
  content,
  parentHash,
  base,
  commits,
  tags,
  onBase,
}: {
  readonly name: RepoName;
  readonly isDirectory: boolean;
  readonly content: CommitContent;
  /** Null: the commit is the first one. Undefined: the page of commits that contains it is not loaded. */
  readonly parentHash: string | null | undefined;
  /** Hash or tag of the commit to compare to. Default: the parent. */
  readonly base: string | undefined;
  readonly commits: readonly Commit[];
  readonly tags: readonly Tag[];
  readonly onBase: (base: string | undefined) => void;
}) {
  const wanted = base ?? parentHash ?? undefined;
  const found = useCommit(name, wanted ?? '', wanted !== undefined);
  const others = commits.filter(({ commit_hash }) => commit_hash !== content.commit_hash);
  const current = others.find(({ commit_hash }) => base !== undefined && commit_hash.startsWith(base));
  return (
    <>
      <label className="row wrap">
        Compared to
        <select
          className="input"
          value={current?.commit_hash ?? base ?? ''}
          onChange={({ target }) => onBase(target.value.slice(0, 8) || undefined)}
        >
          <option value="">its parent</option>
          {base !== undefined && current === undefined && <option value={base}>{showInvisible(base)}</option>}
          {others.map((commit) => (
            <option key={commit.id} value={commit.commit_hash}>
              {describeCommit(commit, tags)}
            </option>
          ))}
        </select>
      </label>
      {wanted === undefined ? (
        <EmptyState title={parentHash === null ? 'This is the first commit' : 'The parent is not in the list yet'}>
          {parentHash === null
            ? 'Choose another commit to compare it to.'
            : 'Show older commits, or choose another commit to compare it to.'}
        </EmptyState>
      ) : (
        <QueryState query={{ ...found, data: found.isPlaceholderData ? undefined : found.data }}>
          {({ manifest }) => <Sections before={manifest} after={content.manifest} isDirectory={isDirectory} />}
        </QueryState>
      )}
    </>
  );
}

function describeCommit({ id, commit_hash, description }: Commit, tags: readonly Tag[]): string {
  const names = tags.filter(({ commit_id }) => commit_id === id).map(({ tag_name }) => tag_name);
  const words = [commit_hash.slice(0, 8), ...names, description ?? ''].filter((word) => word !== '');
  return showInvisible(words.join(' · ').slice(0, 80));
}

function Sections({
  before,
  after,
  isDirectory,
}: {
  readonly before: unknown;
  readonly after: unknown;
  readonly isDirectory: boolean;
}) {
  const [old, now] = [toSections(before, isDirectory), toSections(after, isDirectory)];
  const changed = [...new Set([...now.keys(), ...old.keys()])].filter((name) => old.get(name) !== now.get(name));
  if (changed.length === 0)
    // The commits differ only in fields that are shown only as JSON.
    return <TextDiff label="Difference of the JSON" before={formatExact(before)} after={formatExact(after)} />;
  return changed.map((name) => (
    <section key={name} className="file">
      <h3>
        <Value text={name} /> {!old.has(name) && <span className="badge">added</span>}
        {!now.has(name) && <span className="badge">removed</span>}
      </h3>
      <TextDiff
        label={`Difference of ${showInvisible(name)}`}
        before={old.get(name) ?? ''}
        after={now.get(name) ?? ''}
      />
    </section>
  ));
}

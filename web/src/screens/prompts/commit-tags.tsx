import { useMutation, useQueryClient } from '@tanstack/react-query';
import { call } from '../../api/client.ts';
import { ConfirmButton } from '../../components/confirm-button.tsx';
import { Popover } from '../../components/popover.tsx';
import { Problem } from '../../components/states.tsx';
import { TagForm } from '../../components/tag-form.tsx';
import { Value } from '../../components/text.tsx';
import type { Commit, RepoName, Tag } from './use-commits.ts';

/** The tags of a commit, and forms that set and remove them. */
export function CommitTags({
  name,
  canUpdate,
  commit,
  tags,
}: {
  readonly name: RepoName;
  readonly canUpdate: boolean;
  readonly commit: Commit | undefined;
  readonly tags: readonly Tag[];
}) {
  const client = useQueryClient();
  const refresh = () => client.invalidateQueries({ queryKey: ['prompt', name] });
  const remove = useMutation({
    mutationFn: (tag: string) =>
      call('delete', '/api/v1/repos/{owner}/{repo}/tags/{tag_name}', { path: { ...name, tag_name: tag } }),
    onSuccess: refresh,
  });
  return (
    <>
      {tags.map(({ tag_name }) => (
        <span key={tag_name} className="chip">
          <Value text={tag_name} />
          {canUpdate && (
            <ConfirmButton
              label="Remove"
              name={`Remove the tag ${tag_name}`}
              question={`Remove the tag ${tag_name}? Programs that read the prompt by this tag stop finding it.`}
              onConfirm={() => remove.mutate(tag_name)}
            />
          )}
        </span>
      ))}
      {canUpdate && commit && (
        <Popover label="Tag">
          {(close) => (
            <TagForm
              what="commit"
              onSet={(tag) =>
                call('post', '/api/v1/repos/{owner}/{repo}/tags', {
                  path: { ...name },
                  body: { tag_name: tag, commit_id: commit.id },
                })
              }
              onDone={() => {
                close();
                void refresh();
              }}
            />
          )}
        </Popover>
      )}
      <Problem message={remove.error?.message} />
    </>
  );
}

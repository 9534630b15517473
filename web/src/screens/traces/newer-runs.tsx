/** Says that a live list has fallen behind while older rows are shown. Renders nothing without `onShow`. */
export function NewerRuns({ onShow }: { readonly onShow: (() => void) | undefined }) {
  if (onShow === undefined) return null;
  return (
    <p className="row wrap notice" role="status">
      There are newer runs than those shown.
      <button type="button" className="button" onClick={onShow}>
        Show the newest
      </button>
    </p>
  );
}

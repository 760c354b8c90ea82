/**
 * Refund check: the recorded decision must be the one the records give.
 *
 * Reads scratchpad/refund.json and the orders. Advances to refund-review on a match, back to refund-request with what to
 * write otherwise, and to escalation when it was sent back twice already. Unreadable records throw.
 */
const RECORDS = "skills/order-data/assets/orders.json";
const FILE = "scratchpad/refund.json";

export default async function ({ tools }) {
  const { messages, trail } = JSON.parse(await tools.archmax_get_history());
  const orders = JSON.parse(await tools.read_file({ file_path: RECORDS }));
  const text = messages.find(({ role }) => role === "user")?.text.toLowerCase() ?? "";
  const company = orders.find(({ email }) => text.includes(email.toLowerCase()))?.customer;

  const problem = wrong(await tools.read_file({ file_path: FILE }), orders.filter(({ customer }) => customer === company));
  if (!problem) return tools.archmax_advance({ to: "refund-review", reason: "the decision agrees with the records" });

  const returned = trail.filter(({ kind, to }) => kind === "code" && to === "refund-request").length;
  if (returned >= 2) return tools.archmax_advance({ to: "escalation", reason: `still wrong after two returns: ${problem}` });
  await tools.archmax_advance({ to: "refund-request", reason: problem });
}

/** What to write instead, or nothing when the file is right. */
function wrong(body, own) {
  let refund;
  try {
    refund = JSON.parse(body);
  } catch {
    return `write ${FILE} as { "orderId", "decision", "reason" }; it is missing or no JSON`;
  }
  if (refund?.decision !== "approved" && refund?.decision !== "denied") {
    return `write "decision" in ${FILE} as "approved" or "denied"`;
  }
  const order = own.find(({ id }) => id === refund.orderId);
  const derived = ["delivered", "delayed"].includes(order?.status) ? "approved" : "denied";
  console.log(`derived ${derived}, recorded ${refund.decision}`);
  if (!order && refund.orderId != null) return `write "orderId" in ${FILE} as null: the company has no such order`;
  if (derived === refund.decision) return null;
  return `write "decision" in ${FILE} as "${derived}": ${order ? `${order.id} is ${order.status}` : "the company has no such order"}`;
}

// Search in pages that are opened from a folder: browsers refuse workers there, so the search index lives in a hidden frame instead.
if (location.protocol === "file:")
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      (document.body || document.documentElement).append(this.frame);
      const own = this.frame.contentWindow;
      own.document.open();
      own.document.write(
        `<script>postMessage = message => parent.dispatchEvent(new parent.MessageEvent("message", { data: message, source: window }));` +
          `importScripts = () => {};<\/script><script src="${new URL(address, location.href)}"><\/script>`,
      );
      own.document.close();
      addEventListener("message", event => {
        if (event.source !== own) return;
        const heard = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(heard);
        if (this.onmessage) this.onmessage(heard);
      });
      this.ready = new Promise(done => this.frame.addEventListener("load", done, { once: true }));
    }
    postMessage(message) {
      const own = this.frame.contentWindow;
      this.ready.then(() => own.dispatchEvent(new own.MessageEvent("message", { data: message })));
    }
    terminate() {
      this.frame.remove();
    }
  };
